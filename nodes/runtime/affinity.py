"""Which cores the threads of a node run on."""

from __future__ import annotations

import os


def share_a_core() -> None:
  """Keeps the calling thread, and those that it begins from now on, on one core.

  Threads of one Python process take turns anyway: on one core they hand the interpreter lock over
  without waking another core for it. Threads that are there already, XLA's among them, stay free. The
  core follows from the process's id, so that processes are spread over those they may use. Does
  nothing where the system knows no affinities.
  """
  if hasattr(os, 'sched_setaffinity'):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
