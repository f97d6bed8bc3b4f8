"""Means of a node's measurements over its last reports."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping

WINDOW_SECONDS = 60.0


class Recent:
  """Means over the last minute of reports.

  A single report covers about a second, in which a learner may do no step at all, or nothing else.
  """

  def __init__(self, window: float = WINDOW_SECONDS):
    """Initialises the means.

    Args:
      window: seconds of reports to keep.
    """
    self._window = window
    self._rows: collections.deque[tuple[float, dict[str, float]]] = collections.deque()

  def add(self, seconds: float, values: Mapping[str, float]) -> None:
    """Adds a report; one that is not newer than the last is ignored.

    Args:
      seconds: its time since the start of the run.
      values: its values by name; those that are not finite are left out.
    """
    if self._rows and seconds <= self._rows[-1][0]:
      return
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    self._rows.append((seconds, finite))
    while self._rows[0][0] < seconds - self._window:
      self._rows.popleft()

  def clear(self) -> None:
    """Forgets every report."""
    self._rows.clear()

  def means(self) -> dict[str, float]:
    """Returns the mean of every value over the reports that have it."""
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for _, values in self._rows:
      for name, value in values.items():
        sums[name] = sums.get(name, 0.0) + value
        counts[name] = counts.get(name, 0) + 1
    return {name: total / counts[name] for name, total in sums.items()}

  def rate(self, name: str) -> float:
    """Returns the increase of a counter per second; nan with fewer than two reports of it."""
    known = [(seconds, values[name]) for seconds, values in self._rows if name in values]
    if len(known) < 2 or known[-1][1] < known[0][1]:
      return math.nan
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
