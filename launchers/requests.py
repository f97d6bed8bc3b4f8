"""What a launcher is asked to do by signals."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

# What `lp.stop()` sends: the program has done its work. No site or shell sends it.
DONE = signal.SIGRTMIN + 4
STACKS = signal.SIGURG
# With which code a launcher ends that was asked to stop: 128 and the signal's number.
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


class Requests(list[int]):
  """The requests to stop, oldest first: numbers of signals in `EXIT_CODES`.

  Attributes:
    stacks: whether every node is to write its stacks to its log.
  """

  stacks = False


@contextlib.contextmanager
def collected() -> Iterator[Requests]:
  """Collects the signals that reach this process, which end nothing by themselves meanwhile."""
  requests = Requests()

  def ask_for_stacks(number: int, frame: object) -> None:
    requests.stacks = True

  heeded = [n for n in EXIT_CODES if signal.getsignal(n) is not signal.SIG_IGN]  # As nohup has it.
  before = {n: signal.signal(n, lambda number, frame: requests.append(number)) for n in heeded}
  before[STACKS] = signal.signal(STACKS, ask_for_stacks)
  try:
    yield requests
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
