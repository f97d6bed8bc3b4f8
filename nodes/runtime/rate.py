"""The rate of a count in reports."""

from __future__ import annotations


class Rate:
  """The rate of a count, which may grow in steps that are rarer than the reports.

  A report without growth repeats the last rate, or gives a lower one once the next step is overdue.
  """

  def __init__(self) -> None:
    self._count, self._grown = 0, 0
    self._seconds, self._rate = 0.0, 0.0

  def start(self, count: int) -> None:
    """Counts from `count` on."""
    self._count, self._seconds = count, 0.0

  def measure(self, count: int, seconds: float) -> float:
    """Returns the growth per second.

    Args:
      count: the count now.
      seconds: since the last call.
    """
    self._seconds += seconds
    if count == self._count:
      return min(self._rate, self._grown / self._seconds)
    self._grown = count - self._count
    self._rate = self._grown / self._seconds
    self.start(count)
    return self._rate
