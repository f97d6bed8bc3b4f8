"""Supervises the nodes of a running program, on any machines."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from signal import SIGINT, SIGKILL
from typing import IO

from launchers import logs, streams
from launchers.heartbeat import Beat
from launchers.stop_requests import EXIT_CODES, StopRequests
from launchers.watched import Node, Watched, watch

# Nodes exit within 4 seconds of SIGTERM, except while they write a checkpoint.
STOP_SECONDS = 30.0
FAILED = 1
_TICK_SECONDS = 0.1
_REPORT_SECONDS = 1.0
# Nodes that one tick looks at, and logs that one report looks at. More nodes than that have their turns,
# so that supervision takes a few percent of a core however many there are: each of 4,096 nodes is looked
# at every 4 seconds.
_NODES_AT_ONCE, _LOGS_AT_ONCE = 100, 1000
# A longer gap between two ticks means that this process was suspended.
_SUSPENDED_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class RunCallbacks:
  """Callbacks of a launcher that supervises a program.

  Attributes:
    accepted: called once the program can no longer be refused, as when its nodes are supervised.
    started: called once every address is bound.
    restarted: called with the name of each node that will be restarted.
    beats: called once a second with the latest heartbeat of each node that has sent one. It is at most
      some seconds old in a program of thousands of nodes.
    ended: called once every node has exited, before the report of a failure.
  """

  accepted: Callable[[], object] = lambda: None
  started: Callable[[], None] = lambda: None
  restarted: Callable[[str], None] = lambda name: None
  beats: Callable[[Mapping[str, Beat]], None] = lambda beats: None
  ended: Callable[[], None] = lambda: None


NO_CALLBACKS = RunCallbacks()


def supervise[N: Node](
  nodes: Sequence[N],
  requests: StopRequests,
  out: IO[str] | None = None,
  callbacks: RunCallbacks = NO_CALLBACKS,
  node_timeout: float = math.inf,
) -> int:
  """Waits until every node has exited.

  A failed node is restarted as its group's policy allows. If its group is one multi-process job, the
  other nodes of the group are killed and restart with it, which counts as one failure. A hanging node
  writes its stacks to its log, is killed, and counts as failed. The program stops on a failure with no
  restart left, on a request, or on an exception in this function: every node gets SIGTERM, and SIGKILL
  30 seconds later. A second Ctrl-C kills every node at once.

  Args:
    nodes: the nodes of the program.
    requests: signal handlers may append to it during the call.
    out: receives a sentence about each failure that does not end the program, and the last log lines
      of the node whose failure does; None for stderr. It may be closed at any time. While nothing reads
      it, the supervision continues.
    callbacks: called during supervision.
    node_timeout: seconds without a heartbeat, or without progress, after which a node is killed.

  Returns:
    The exit code: 0, FAILED, or that of the first request.
  """
  supervision = _Supervision(nodes, requests, out or sys.stderr, callbacks, node_timeout)
  callbacks.accepted()
  try:
    return supervision.run()
  except BaseException:
    supervision.stop(FAILED)
    supervision.run()
    raise


class _Supervision[N: Node]:
  """The state of `supervise`."""

  def __init__(
    self,
    nodes: Sequence[N],
    requests: StopRequests,
    out: IO[str],
    callbacks: RunCallbacks,
    node_timeout: float,
  ):
    self._watched = watch(nodes)
    self._turns = _turns(self._watched, _NODES_AT_ONCE)
    self._turn: Sequence[Watched[N]] = ()
    self._log_turns = _turns(self._watched, _LOGS_AT_ONCE)
    self._requests = requests
    self._outlet = streams.Outlet(out)
    self._callbacks = callbacks
    self._node_timeout = node_timeout
    self._code = 0
    self._deadline: float | None = None
    self._is_overdue = False
    self._culprit: Watched | None = None
    self._attentive_since = self._last_tick = time.monotonic()
    self._report_at = 0.0

  def run(self) -> int:
    """Supervises until every node has exited; returns the exit code."""
    pause = threading.Event()
    while not self._ended():
      self._turn = next(self._turns)
      self._handle_requests()
      self._handle_failures()
      for watched in self._turn:
        watched.listen()
      if self._deadline is None:
        self._kill_hung_nodes()
      self._report_state()
      if self._given_up():
        break
      pause.wait(_TICK_SECONDS)
    self._call(self._callbacks.ended)
    self._outlet.close(streams.CLOSE_SECONDS, report(self._culprit) if self._culprit else '')
    return self._code

  def stop(self, code: int, culprit: Watched | None = None) -> None:
    """Sends SIGTERM to every node; the first call sets the exit code."""
    if self._deadline is not None:
      return
    self._code, self._culprit = code, culprit
    self._deadline = time.monotonic() + STOP_SECONDS
    for node in self._watched:
      node.stop()

  def _ended(self) -> bool:
    return all(w.exit_code() is not None for w in self._watched) and (
      self._deadline is not None or not any(w.exit_code() for w in self._watched)
    )

  def _handle_requests(self) -> None:
    asked, self._requests.stacks = self._requests.stacks, False
    if asked:
      for watched in self._watched:
        watched.write_stacks()
    for watched in self._turn:
      watched.insist_on_stacks()
    if self._requests:
      self.stop(EXIT_CODES[self._requests[0]])
    elif self._requests.failure and self._deadline is None:
      self._say(f'error: {self._requests.failure}')
      self.stop(FAILED)
    overdue = self._deadline is not None and time.monotonic() > self._deadline
    if overdue and not self._is_overdue:
      self._is_overdue = True
      self._announce_kill()
    if self._requests.count(SIGINT) > 1 or overdue:
      for watched in self._watched:
        watched.node.send(SIGKILL)

  def _announce_kill(self) -> None:
    left = [w for w in self._watched if w.exit_code() is None]
    if left and self._requests.count(SIGINT) < 2:
      for watched in left:
        watched.listen()
      doing = [f'{w.node.name} ({w.beat.doing})' if w.beat else w.node.name for w in left]
      self._say(
        f'warning: killed {STOP_SECONDS:g} s after SIGTERM: {", ".join(doing)}; a checkpoint that is '
        'not complete is lost'
      )

  def _handle_failures(self) -> None:
    if self._deadline is not None:
      return
    failed = _failed(self._turn)
    if failed and len(self._turn) < len(self._watched):
      failed = _failed(self._watched)  # Those whose turn comes later may be the cause.
    for watched, code in sorted(failed, key=lambda f: f[0].precedence()):
      if watched.exit_code() is None:  # It restarts with the cause of its failure.
        continue
      if sentence := watched.schedule_restart(code):
        self._say(sentence)
        for each in watched.job:
          self._call(self._callbacks.restarted, each.node.name)
      else:
        self.stop(FAILED, watched)
        return

  def _kill_hung_nodes(self) -> None:
    now = time.monotonic()
    if now - self._last_tick > _SUSPENDED_SECONDS:
      self._attentive_since = now  # Heartbeats sent during the suspension are not read yet.
    self._last_tick = now
    for watched in self._turn:
      watched.restart_if_due()
      listening_seconds = now - self._attentive_since
      if sentence := watched.kill_if_hung(self._node_timeout, listening_seconds):
        self._say(sentence)

  def _report_state(self) -> None:
    now = time.monotonic()
    if now < self._report_at:
      return
    self._report_at = now + _REPORT_SECONDS
    beats = {w.node.name.split()[0]: w.beat for w in self._watched if w.beat}
    self._call(self._callbacks.beats, beats)
    # A node may write 100 MB/s, and a longer period would let it fill the disk.
    for watched in next(self._log_turns):
      with contextlib.suppress(OSError):
        logs.bound(watched.node.log_path)

  def _call(self, callback: Callable, *args: object) -> None:
    """Calls a callback. An exception in it does not stop the program."""
    try:
      callback(*args)
    except Exception as error:
      self._say(f'warning: showing the state raised {error!r}; the program continues')

  def _given_up(self) -> bool:
    """Returns whether some node is still running STOP_SECONDS after SIGKILL."""
    if self._deadline is None or time.monotonic() < self._deadline + STOP_SECONDS:
      return False
    left = [w.node.name for w in self._watched if w.exit_code() is None]
    self._say(
      f'error: SIGKILL has not ended {", ".join(left)}: they are blocked in the kernel, perhaps '
      'on an unreachable file system; exiting.'
    )
    self._code = self._code or FAILED
    return True

  def _say(self, sentence: str) -> None:
    self._outlet.say(sentence)


def _turns[T](items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
  """Yields at most `size` items at a time, and begins again after the last ones."""
  while True:
    for begin in range(0, max(len(items), 1), size):
      yield items[begin : begin + size]


def _failed[N: Node](watched: Sequence[Watched[N]]) -> list[tuple[Watched[N], int]]:
  """Returns the nodes that have failed and wait for no restart, with their exit codes."""
  return [(w, code) for w in watched if (code := w.failure())]


def report(watched: Watched, lines: int = 60) -> str:
  """Returns how a node failed, and the end of its log from the last traceback on."""
  node = watched.node
  code = node.exit_code()
  assert code is not None
  how = watched.problem or node.ending()
  first = f'error: node {node.name} {how}; the end of {node.log_path}:\n'
  try:
    tail = logs.tail(node.log_path, lines)
    if not tail:
      free = shutil.disk_usage(node.log_path).free
      return f'{first}(the log is empty; its disk has {free:,} bytes left)'
  except OSError as error:
    return f'{first}(the log cannot be read: {error.strerror})'
  starts = [
    i for i, line in enumerate(tail) if line.startswith('Traceback (most recent call last)')
  ]
  return (first + ''.join(tail[starts[-1] :] if starts and code > 0 else tail)).rstrip('\n')
