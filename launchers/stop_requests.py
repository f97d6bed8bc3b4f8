"""Requests that reach a command as signals."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

# `lp.stop()` sends it: the program has done its work. No cluster software or shell sends it.
DONE = signal.SIGRTMIN + 4
# A node writes its stacks on both; processes ignore them by default, so they do not harm its children.
# A thread of Python writes them on the first. Where no Python runs, the second has a handler in C write
# them; while Python runs, that handler may read a frame that is changing, and crash the process:
# https://github.com/python/cpython/issues/116008.
STACKS = signal.SIGURG
STACKS_OF_STUCK = signal.SIGWINCH
_STUCK_SECONDS = 5.0
_AGAIN_SECONDS = 0.05  # By then the code that drops exceptions has been left.
# Exit codes of a launcher after a request to stop: 128 plus the signal's number.
EXIT_CODES: dict[int, int] = {int(DONE): 0} | {
  int(number): 128 + number
  for number in (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTERM,
  )
}


class StopRequests(list[int]):
  """The requests to stop, oldest first: numbers of signals in `EXIT_CODES`.

  Attributes:
    stacks: whether every node must write its stacks to its log.
    failure: a sentence about a failure elsewhere that ends the program; '' as long as there is none.
  """

  stacks = False
  failure = ''


class StopRequested(KeyboardInterrupt):
  """A signal has asked this process to stop.

  Attributes:
    number: of the signal.
    exit_code: 128 plus that.
  """

  def __init__(self, number: int):
    super().__init__(number)
    self.number = number
    self.exit_code = EXIT_CODES[number]


def for_stacks(age: float) -> signal.Signals:
  """Returns the signal that makes a node write its stacks.

  Args:
    age: seconds since its latest heartbeat; 0 before the first, when it has no handler in C yet.
  """
  return STACKS if age < _STUCK_SECONDS else STACKS_OF_STUCK


@contextlib.contextmanager
def raised() -> Iterator[None]:
  """Raises StopRequested on SIGINT, SIGTERM and SIGHUP, so that the process cleans up and exits.

  Has no effect in a thread, and on signals that are ignored, such as SIGHUP under nohup. Python drops
  exceptions in some places, such as callbacks of the garbage collection, of which JAX has one. Then the
  signal is sent again.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return

  def stop(number: int, frame: object) -> None:
    raise StopRequested(number)

  def send_again(dropped: Any) -> None:
    if isinstance(dropped.exc_value, StopRequested):
      threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), dropped.exc_value.number)).start()
    else:
      hook(dropped)

  numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
  heeded = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
  before = {n: signal.signal(n, stop) for n in heeded}
  hook, sys.unraisablehook = sys.unraisablehook, send_again
  try:
    yield
  finally:
    sys.unraisablehook = hook
    for number, handler in before.items():
      signal.signal(number, handler)


@contextlib.contextmanager
def collected() -> Iterator[StopRequests]:
  """Collects the signals that reach this process, and disables their default actions meanwhile."""
  requests = StopRequests()

  def ask_for_stacks(number: int, frame: object) -> None:
    requests.stacks = True

  heeded = [n for n in EXIT_CODES if signal.getsignal(n) is not signal.SIG_IGN]  # Set by nohup.
  before = {n: signal.signal(n, lambda number, frame: requests.append(number)) for n in heeded}
  before[STACKS] = signal.signal(STACKS, ask_for_stacks)
  try:
    yield requests
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
