"""CPU affinity of a node's threads."""

from __future__ import annotations

import os


def share_a_core() -> None:
  """Pins the calling thread, and the threads that it starts later, to one core.

  Python threads take turns anyway because of the interpreter lock. On one core they pass the lock
  without waking another core. Existing threads, including XLA's, are not pinned. The process id
  selects the core, which spreads processes over the allowed cores. Does nothing if the system has no
  affinities.
  """
  if hasattr(os, 'sched_setaffinity'):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
