"""Drills: processes are stopped and continued by SIGSTOP and SIGCONT, as when a machine sleeps."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence

import psutil

from benchmarks.drills.checks import Checks
from benchmarks.drills.subject import Subject

NODE_TIMEOUT_SECONDS = 15.0
SHORT_SECONDS = 6.0
LONG_SECONDS = 25.0
# Time within which a mistaken kill would follow.
AFTER_SECONDS = 3.0


@contextlib.contextmanager
def stopped(victims: Sequence[psutil.Process]) -> Iterator[None]:
  """Stops processes during the block."""
  try:
    for victim in victims:
      with contextlib.suppress(psutil.NoSuchProcess):
        victim.suspend()
    yield
  finally:
    for victim in victims:
      with contextlib.suppress(psutil.NoSuchProcess):
        victim.resume()


def pause(directory: str, checks: Checks) -> None:
  """Stops each node for less than --node_timeout (no effect), then for longer (the node restarts).

  Args:
    directory: an existing directory.
    checks: collects the results.
  """
  with Subject(directory, checks, f'--node_timeout={NODE_TIMEOUT_SECONDS:g}') as subject:
    pids = subject.begin()
    for node in sorted(pids):
      with stopped([subject.process(node)]):
        time.sleep(SHORT_SECONDS)
      subject.works(node)
      subject.unharmed(pids, f'{node}, stopped for {SHORT_SECONDS:g} s')
    for node in sorted(pids):
      pids = subject.pids()
      with stopped([subject.process(node)]):
        subject.wait(
          functools.partial(subject.replaced, node, pids[node]), f'{node} is started again'
        )
      subject.works(node)
      others = {name: pid for name, pid in pids.items() if name != node}
      subject.unharmed(others, f'{node}, stopped for good and started again, and the others')
    subject.stop()


def suspend(directory: str, checks: Checks) -> None:
  """Stops the launcher, and then the launcher and all nodes, for longer than --node_timeout.

  Args:
    directory: an existing directory.
    checks: collects the results.
  """
  with Subject(directory, checks, f'--node_timeout={NODE_TIMEOUT_SECONDS:g}') as subject:
    pids = subject.begin()
    launcher = psutil.Process(subject.program.launcher.pid)
    for what, nodes in (('the launcher', set()), ('the launcher and all nodes', pids.keys())):
      victims = [process for name, process in subject.program.nodes().items() if name in nodes]
      with stopped([launcher, *victims]):  # The launcher continues first, and judges first.
        time.sleep(LONG_SECONDS)
      time.sleep(AFTER_SECONDS)
      subject.unharmed(pids, f'{what}, stopped for {LONG_SECONDS:g} s')
      pids = subject.pids()
      for node in sorted(pids):
        subject.works(node)
    subject.stop()
