"""Looks after the nodes of a running program, on whatever machines they are."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Protocol, TypeVar

STOP_SECONDS = 6.0
FAILED = 1
EXIT_CODES: dict[int, int] = {signal.SIGUSR1: 0, signal.SIGINT: 130, signal.SIGTERM: 143}


class Node(Protocol):
  """A running node, as an engine shows it to the supervision."""

  @property
  def name(self) -> str:
    """What to call it in a message, as in 'actor/3'."""

  @property
  def log_path(self) -> str:
    """The file on this machine that has its output; complete once it has exited."""

  def exit_code(self) -> int | None:
    """Returns None while it runs; -N if signal N killed it. Does not block."""

  def ending(self) -> str:
    """Says how it ended, as in 'exited with code 1'."""

  def send(self, number: int) -> None:
    """Signals its process, if it still runs, and whatever that has started. Does not block."""


N = TypeVar('N', bound=Node)


def describe_exit(code: int) -> str:
  """Says what an exit code means."""
  return f'was killed by {signal.Signals(-code).name}' if code < 0 else f'exited with code {code}'


@contextlib.contextmanager
def stop_requests() -> Iterator[list[int]]:
  """Collects the requests to stop: SIGUSR1 from `lp.stop()`, SIGINT, SIGTERM."""
  requests: list[int] = []
  before = {n: signal.signal(n, lambda number, frame: requests.append(number)) for n in EXIT_CODES}
  try:
    yield requests
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


def supervise(nodes: Sequence[N], requests: list[int]) -> tuple[int, N | None]:
  """Waits until every node has exited.

  A failed node or a request ends the program: every node gets SIGTERM, and SIGKILL 6 seconds later;
  a second Ctrl-C kills at once.

  Args:
    nodes: of the program.
    requests: numbers of signals in `EXIT_CODES`; others may append while this waits.

  Returns:
    The exit code, and the node whose failure caused it, if one did.
  """
  code, culprit, deadline = 0, None, None
  pause = threading.Event()
  while True:
    exited = {i: c for i, node in enumerate(nodes) if (c := node.exit_code()) is not None}
    if deadline is None and any(exited.values()):
      code, culprit = FAILED, nodes[next(i for i, c in exited.items() if c)]
      deadline = _stop(nodes)
    elif deadline is None and requests:
      code = EXIT_CODES[requests[0]]
      deadline = _stop(nodes)
    if len(exited) == len(nodes):
      return code, culprit
    overdue = deadline is not None and time.monotonic() > deadline
    if overdue or requests.count(signal.SIGINT) > 1:
      for node in nodes:
        node.send(signal.SIGKILL)
    pause.wait(0.1)


def _stop(nodes: Sequence[Node]) -> float:
  """Asks every node to stop; returns when to kill those that have not."""
  for node in nodes:
    node.send(signal.SIGTERM)
  return time.monotonic() + STOP_SECONDS


def report(node: Node, out: IO[str], lines: int = 60) -> None:
  """Prints how a node failed and the end of its log, from the last traceback on."""
  code = node.exit_code()
  assert code is not None
  with open(node.log_path, errors='replace') as log:
    tail = log.readlines()[-lines:]
  starts = [
    i for i, line in enumerate(tail) if line.startswith('Traceback (most recent call last)')
  ]
  print(f'error: node {node.name} {node.ending()}; the end of {node.log_path}:', file=out)
  if not tail:
    free = shutil.disk_usage(node.log_path).free
    print(f'(the log is empty; its disk has {free:,} bytes left)', file=out)
  print(''.join(tail[starts[-1] :] if starts and code > 0 else tail), end='', file=out, flush=True)
