"""The mean return of the last episodes, from intervals of which only a number and a sum are known."""

from __future__ import annotations

import collections
import math

# Episodes in a mean return.
EPISODES = 100


class RecentReturns:
  """Keeps the fewest last intervals that hold a hundred episodes."""

  def __init__(self) -> None:
    self._intervals: collections.deque[tuple[int, float]] = collections.deque()

  def add(self, episodes: int, total: float) -> None:
    """Adds an interval: the number of ended episodes, and the sum of their returns."""
    if episodes:
      self._intervals.append((episodes, total))
    while self._count() - self._first() >= EPISODES:
      self._intervals.popleft()

  def mean(self) -> float:
    """Returns the mean; NaN before the end of the first episode."""
    count = self._count()
    return sum(total for _, total in self._intervals) / count if count else math.nan

  def _count(self) -> int:
    return sum(episodes for episodes, _ in self._intervals)

  def _first(self) -> int:
    return self._intervals[0][0] if self._intervals else EPISODES
