"""Reports a node's measurements to the monitor without waiting for replies."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

from nodes.runtime import lifecycle, rpc


class _Calls:
  """Calls at most once per period, and none before the previous one has its reply.

  A reply that is a number of seconds prolongs the period until the next reply.

  Attributes:
    pending: the latest call.
  """

  def __init__(self, period: float):
    self._shortest = self._period = period
    self._last = time.monotonic()
    self.pending: futures.Future | None = None

  def due(self) -> bool:
    """Returns whether to call now; mostly costs one clock reading."""
    elapsed = time.monotonic() - self._last
    if elapsed < self._period:
      return False
    if self.pending is None:
      return True
    if not self.pending.done():
      return False
    self._period = max(self._shortest, _seconds(self.pending))
    return elapsed >= self._period

  def send(self, call: Callable[[], futures.Future]) -> None:
    self.pending = call()
    self._last = time.monotonic()


def _seconds(reply: futures.Future) -> float:
  """Returns the seconds that a reply asks for; 0 if the call has failed or asks for none."""
  if reply.exception() is not None:
    return 0.0
  asked = reply.result()
  return asked if isinstance(asked, float) else 0.0


class Reporter:
  """Sends measurements to the monitor, at most once every `period` seconds.

  Reports are rarer if the monitor asks for that in its replies, as it does of thousands of nodes. No
  report is sent while the previous one is pending, so a slow or unavailable monitor costs a node
  nothing. Every value is absolute (a count since the start, a rate over the last period), so a lost or
  duplicate report does no harm.

  Use it as a context manager: on exit it waits a moment for a pending reply, so that a last report is
  not lost with the process.

  Attributes:
    training_finished: whether the monitor has confirmed it in reply to `poll_training_finished`.
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
      measure: takes the seconds since the last report, or since the entry into the context, and returns
        the values by name.
      period: shortest time between reports, and between polls, in seconds.
    """
    self._monitor = monitor
    self._node = node
    self._measure = measure
    # Arguments of every call; a node that was never restarted leaves them out.
    self._restarts = (restarts,) if (restarts := lifecycle.restart_count()) else ()
    self._reports, self._polls = _Calls(period), _Calls(period)
    self._reported = time.monotonic()
    self.training_finished = False

  def maybe_report(self) -> None:
    """Sends a report if one is due; otherwise costs one clock reading."""
    if self._monitor is not None and self._reports.due():
      values = self._values()
      self._reports.send(lambda: self._report(values))

  def maybe_count(self, counts: Mapping[str, float]) -> None:
    """Sends counters alone if a report is due, by a node that has no measurements yet."""
    if self._reports.due():
      self.count(counts)

  def count(self, counts: Mapping[str, float]) -> None:
    """Sends the counters that a node begins with; does not wait for the reply."""
    if self._monitor is not None:
      count = functools.partial(self._monitor.futures.count, self._node, dict(counts))
      self._reports.send(lambda: count(*self._restarts))

  def poll_training_finished(self) -> None:
    """Asks the monitor whether training has finished, once a period; sets `training_finished`."""
    if self._monitor is None or not self._polls.due():
      return
    reply = self._polls.pending
    if reply is not None and reply.exception() is None and reply.result() is True:
      self.training_finished = True
    self._polls.send(self._monitor.futures.finished)

  def report_now(self, should_stop: Callable[[], bool]) -> None:
    """Sends a report whether or not one is due, and waits for the monitor's reply.

    Retries while the monitor is unavailable.

    Args:
      should_stop: polled twice a second while it waits.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """
    if self._monitor is not None:
      values = self._values()
      rpc.call(lambda: self._report(values), should_stop, 'report')

  def __enter__(self) -> Reporter:
    self._reported = time.monotonic()
    return self

  def __exit__(self, *raised: object) -> None:
    self.close()

  def close(self, timeout: float = 0.5) -> None:
    """Waits at most `timeout` seconds for pending replies."""
    calls = (self._reports.pending, self._polls.pending)
    futures.wait([pending for pending in calls if pending is not None], timeout)

  def report_finished_until_stopped(
    self,
    values: Mapping[str, float],
    stop: threading.Event,
    check: Callable[[], None] = lambda: None,
    repeat: Callable[[], futures.Future] | None = None,
  ) -> None:
    """Reports the end of training to the monitor until the program stops.

    The report is repeated, since a restarted monitor needs it again. Without a monitor, this only waits.

    Args:
      values: the final counters and the node's other entries in the summary.
      stop: set when the program stops.
      check: raises the node's error, if any; called often.
      repeat: reports the end to another node again, and does not wait; called once a second, and not
        before the previous call has its reply.

    Raises:
      lifecycle.Stopped: if the program stops during a call.
      Exception: any exception from `check`.
    """

    def should_stop() -> bool:
      if not stop.is_set():
        check()
      return stop.is_set()

    repeats = _Calls(0.0)
    while not should_stop():
      if self._monitor is not None:
        report = functools.partial(
          self._monitor.futures.report_training_finished, self._node, dict(values)
        )
        rpc.call(report, should_stop, 'report_training_finished')
      if repeat is not None and repeats.due():
        repeats.send(repeat)
      stop.wait(1.0)

  def _report(self, values: Mapping[str, float]) -> futures.Future:
    return self._monitor.futures.report(self._node, values, *self._restarts)

  def _values(self) -> dict[str, float]:
    now = time.monotonic()
    seconds, self._reported = max(now - self._reported, 1e-3), now
    return {name: float(value) for name, value in self._measure(seconds).items()}
