"""Sends a node's measurements to the monitor without ever waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any


class Reporter:
  """Pushes what `measure` returns to the monitor, at most once in `period` seconds.

  A report that the monitor has not taken yet holds back the next one, so a slow or absent monitor
  costs a node nothing. Every value is absolute (a count since the start, a rate over the last
  period), so a lost or repeated report does no harm.
  """

  def __init__(
    self,
    monitor: Any,
    node: str,
    measure: Callable[[float], Mapping[str, float]],
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
    self._last = time.monotonic()
    self._pending: futures.Future | None = None

  def maybe_report(self) -> None:
    """Sends a report if one is due; costs a clock reading if not."""
    now = time.monotonic()
    if self._monitor is None or now - self._last < self._period:
      return
    if self._pending is not None and not self._pending.done():
      return
    values = {k: float(v) for k, v in self._measure(now - self._last).items()}
    self._pending = self._monitor.futures.report(self._node, values)
    self._last = now
