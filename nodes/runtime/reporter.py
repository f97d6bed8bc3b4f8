"""Reports to the monitor what a node measures, without ever waiting for an answer."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

from nodes.runtime import rpc


class Reporter:
  """Pushes what `measure` returns to the monitor, at most once in `period` seconds.

  A report that the monitor has not taken yet holds back the next one, so a slow or absent monitor
  costs a node nothing. Every value is absolute (a count since the start, a rate over the last
  period), so a lost or repeated report does no harm.

  Attributes:
    training_finished: whether the monitor has answered so to `ask_for_finish`.

  A context manager, which closes it: Courier aborts a process in which an answer comes while the
  interpreter is being taken down.
  """

  def __init__(
    self,
    monitor: Any,
    node: str,
    measure: Callable[[float], Mapping[str, float]] = lambda seconds: {},
    period: float = 1.0,
  ):
    """Initialises a reporter.

    Args:
      monitor: a Courier client of the monitor, or None to report nothing.
      node: the node's name, such as 'actor/3'.
      measure: given the seconds since the last report, returns the values by name.
      period: seconds between reports.
    """
    self._monitor = monitor
    self._node = node
    self._measure = measure
    self._period = period
    self._last = self._reported = time.monotonic()
    self._pending: futures.Future | None = None
    self.training_finished = False

  def maybe_report(self) -> None:
    """Sends a report if one is due; costs a clock reading if not."""
    if self._due(time.monotonic() - self._last):
      values = self._values()
      self._send(lambda: self._monitor.futures.report(self._node, values))

  def ask_for_finish(self) -> None:
    """Asks whether training has finished, at most once in a period; see `training_finished`."""
    if self._due(time.monotonic() - self._last):
      self._send(self._monitor.futures.finished)

  def report_now(self, should_stop: Callable[[], bool]) -> None:
    """Sends a report, due or not, and waits until it has been taken.

    Raises:
      lifecycle.Stopped: when `should_stop` says so.
    """
    values = self._values()
    rpc.call(lambda: self._monitor.futures.report(self._node, values), should_stop, 'report')

  def __enter__(self) -> Reporter:
    return self

  def __exit__(self, *raised: object) -> None:
    self.close()

  def close(self, timeout: float = 0.5) -> None:
    """Waits for the answer under way, `timeout` seconds at most."""
    if self._pending is not None:
      futures.wait([self._pending], timeout)

  def report_finished_until_stopped(
    self,
    values: Mapping[str, float],
    stop: threading.Event,
    check: Callable[[], None] = lambda: None,
  ) -> None:
    """Tells the monitor that training has finished, until the program stops.

    It repeats the call: a monitor that restarts has to receive it again.

    Args:
      values: the final counters, and whatever else the summary is to say about the node.
      stop: set when the program stops.
      check: raises what the node has failed with meanwhile, if it has; called often.

    Raises:
      lifecycle.Stopped: when it does so within a call.
      Exception: what `check` raises.
    """

    def should_stop() -> bool:
      if not stop.is_set():
        check()
      return stop.is_set()

    while not should_stop():
      tell = functools.partial(self._monitor.futures.training_finished, self._node, values)
      rpc.call(tell, should_stop, 'training_finished')
      stop.wait(1.0)

  def _values(self) -> dict[str, float]:
    now = time.monotonic()
    seconds, self._reported = max(now - self._reported, 1e-3), now
    return {name: float(value) for name, value in self._measure(seconds).items()}

  def _due(self, seconds: float) -> bool:
    if self._monitor is None or seconds < self._period:
      return False
    if self._pending is None:
      return True
    if not self._pending.done():
      return False
    if self._pending.exception() is None and self._pending.result() is True:
      self.training_finished = True
    return True

  def _send(self, send: Callable[[], futures.Future]) -> None:
    self._pending = send()
    self._last = time.monotonic()
