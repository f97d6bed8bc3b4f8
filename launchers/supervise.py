"""Looks after the nodes of a running program, on whatever machines they are."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Generic, Protocol, TypeVar

from launchers import restart
from launchers.placement import Resources

# Nodes leave within 4 seconds of SIGTERM, but for those that write a checkpoint.
STOP_SECONDS = 30.0
# How much longer than at work a node may be silent while it starts: it may have much to compile.
START_FACTOR = 4.0
FAILED = 1
EXIT_CODES: dict[int, int] = {signal.SIGUSR1: 0, signal.SIGINT: 130, signal.SIGTERM: 143}


class Node(Protocol):
  """A running node, as an engine shows it to the supervision."""

  @property
  def name(self) -> str:
    """What to call it in a message: label and index, and then perhaps where, as in 'actor/3 on h1'."""

  @property
  def log_path(self) -> str:
    """The file on this machine that has its output; complete once it has exited."""

  @property
  def resources(self) -> Resources:
    """Those of its group; what they say about restarts is heeded here."""

  def exit_code(self) -> int | None:
    """Returns None while it runs; -N if signal N killed it. Does not block."""

  def ending(self) -> str:
    """Says how it ended, as in 'exited with code 1'."""

  def send(self, number: int) -> None:
    """Signals its process, if it still runs, and whatever that has started. Does not block."""

  def can_restart(self) -> bool:
    """Whether there is a way to start it again after its latest end."""

  def restart(self) -> None:
    """Starts it again, once it has exited, at the addresses it had. Its log goes on.

    LAUNCHPOD_LIFE in its environment says how often it has been started before.
    """


@dataclasses.dataclass(frozen=True)
class Watch:
  """What a launcher tells and asks whoever watches a program.

  Attributes:
    started: called once every address is bound.
    restarted: called with the name of each node that failed and is to be started again.
    silent: returns how many seconds ago each node, by its label and index, was last heard of.
    node_timeout: seconds of silence after which a node is killed.
  """

  started: Callable[[], None] = lambda: None
  restarted: Callable[[str], None] = lambda name: None
  silent: Callable[[], Mapping[str, float]] = dict
  node_timeout: float = math.inf


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


NOBODY = Watch()


class _Watched(Generic[N]):
  """A node through all its lives."""

  def __init__(self, node: N):
    self.node = node
    self.began = time.monotonic()
    self._record = restart.Record(node.resources)
    self._due: float | None = None
    self._killed = False
    self._silence = 0.0

  def exit_code(self) -> int | None:
    """Returns None while the node runs or is to run again."""
    return None if self._due is not None else self.node.exit_code()

  def forgive(self, code: int) -> str:
    """Arranges another life after a failure; returns what to tell about it, '' if there is none."""
    delay = self._record.delay(code, time.monotonic() - self.began - self._silence)
    if delay is None or not self.node.can_restart():
      return ''
    self._due = time.monotonic() + delay
    return (
      f'node {self.node.name} {self.node.ending()}; starting it again in {delay:g} s '
      f'({self._record.failures} of {self.node.resources.max_restarts} restarts in a row)'
    )

  def tend(self) -> None:
    """Starts the node again when that is due."""
    if self._due is not None and time.monotonic() >= self._due:
      self._due, self._killed, self._silence = None, False, 0.0
      self.began = time.monotonic()
      self.node.restart()

  def end_silence(self, silent: Mapping[str, float], timeout: float) -> str:
    """Kills the node if it has been silent for too long; returns what to tell about it, or ''.

    A node that has not been heard of in this life is still starting, for which it has longer.
    """
    seconds = silent.get(self.node.name.split()[0], 0.0)
    lifetime = time.monotonic() - self.began
    overdue = seconds > timeout and (lifetime > seconds or lifetime > START_FACTOR * timeout)
    if self.exit_code() is not None or not overdue:
      return ''
    self.node.send(signal.SIGKILL)
    if self._killed:  # On another machine that takes a while to be seen.
      return ''
    self._killed = True
    self._silence = seconds  # Is no time that it has run for.
    return (
      f'node {self.node.name} has said nothing for {seconds:.0f} s, longer than --node_timeout='
      f'{timeout:g}; killing it'
    )

  def stop(self) -> None:
    """Asks the node to stop, or not to come back."""
    self._due = None
    self.node.send(signal.SIGTERM)


def supervise(
  nodes: Sequence[N],
  requests: list[int],
  out: IO[str] = sys.stderr,
  watch: Watch = NOBODY,
) -> int:
  """Waits until every node has exited.

  A node that fails is started again as its group's policy allows; one that has fallen silent is killed
  first. A failure beyond that, or a request, ends the program: every node gets SIGTERM, and SIGKILL 30
  seconds later; a second Ctrl-C kills at once.

  Args:
    nodes: of the program.
    requests: numbers of signals in `EXIT_CODES`; others may append while this waits.
    out: gets a sentence about each failure that does not end the program, and the end of the log of the
      node whose failure does.
    watch: is told of restarts, and asked who is silent.

  Returns:
    The exit code: 0, FAILED, or that of the first request.
  """

  def tell(sentence: str) -> None:
    print(sentence, file=out, flush=True)

  code, deadline = 0, None
  culprit: Node | None = None
  pause = threading.Event()
  watched = [_Watched(node) for node in nodes]
  while True:
    exited = [(w, c) for w in watched if (c := w.exit_code()) is not None]
    if deadline is None and requests:
      code = EXIT_CODES[requests[0]]
      deadline = _stop(watched)
    # One that was killed comes first: others may have failed for want of it.
    for life, failure in sorted(exited, key=lambda e: e[1] >= 0):
      if deadline is None and failure:
        if sentence := life.forgive(failure):
          tell(sentence)
          watch.restarted(life.node.name)
        else:
          code, culprit = FAILED, life.node
          deadline = _stop(watched)
    if all(w.exit_code() is not None for w in watched):
      if culprit is not None:
        report(culprit, out)
      return code
    if deadline is None:
      silent = watch.silent()
      for life in watched:
        life.tend()
        if sentence := life.end_silence(silent, watch.node_timeout):
          tell(sentence)
    if requests.count(signal.SIGINT) > 1 or (deadline and time.monotonic() > deadline):
      for node in nodes:
        node.send(signal.SIGKILL)
    pause.wait(0.1)


def _stop(watched: Sequence[_Watched]) -> float:
  """Asks every node to stop; returns when to kill those that have not."""
  for life in watched:
    life.stop()
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
