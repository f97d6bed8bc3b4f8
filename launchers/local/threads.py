"""Runs a graph as threads of this process, with Launchpad's own launcher local_mt."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Iterator
from types import FrameType

import launchpad as lp

from launchers import certificate
from launchers.stop_requests import EXIT_CODES
from launchers.supervise import NO_CALLBACKS, RunCallbacks


def launch(program: lp.Program, callbacks: RunCallbacks = NO_CALLBACKS) -> int:
  """Runs a program to completion; returns the exit code: 0, 1, or that of a request to stop.

  SIGTERM is no such request: `lp.stop()` sends it to this process, and it ends with 0.

  Args:
    program: the graph.
    callbacks: `accepted` and `started` are called once the nodes have been started.
  """
  pem = certificate.in_memory(certificate.new())
  os.environ.update(certificate.variable(pem))
  try:
    manager = lp.launch(program, launch_type='local_mt')
    with _noted() as asked:
      callbacks.accepted()
      callbacks.started()
      manager.wait()
    return EXIT_CODES[asked[0]] if asked else 0
  except Exception:
    traceback.print_exc()
    return 1
  finally:
    del os.environ[certificate.VARIABLE]
    pem.close()


@contextlib.contextmanager
def _noted() -> Iterator[list[int]]:
  """Notes SIGINT and SIGHUP, on which Launchpad ends the threads and says nothing to `launch`."""
  asked: list[int] = []
  before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGHUP)}

  def end(number: int, frame: FrameType | None) -> None:
    asked.append(number)
    # Launchpad has no handler for SIGHUP.
    handler = before[signal.SIGINT]
    if callable(handler):
      handler(signal.SIGINT, frame)

  heeded = [n for n, handler in before.items() if handler is not signal.SIG_IGN]  # Set by nohup.
  for number in heeded:
    signal.signal(number, end)
  try:
    yield asked
  finally:
    for number in heeded:
      signal.signal(number, before[number])
