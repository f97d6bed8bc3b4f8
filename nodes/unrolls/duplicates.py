"""Drops duplicate unrolls that a writer sent twice.

If a replay server dies, its writers resend all unconfirmed unrolls to the next incarnation. The learner
may have sampled some of them already.
"""

from __future__ import annotations

import collections

_REMEMBERED = 1 << 14


class DuplicateFilter:
  """Remembers the most recently sampled unrolls."""

  def __init__(self) -> None:
    self._ids: set[int] = set()
    self._order: collections.deque[int] = collections.deque()

  def keeps(self, unroll_id: int, times_sampled: int) -> bool:
    """Returns whether to train on a sample.

    Args:
      unroll_id: unique in the run.
      times_sampled: number of times that the server has sampled the item, this one included. A value
        above 1 is a deliberate repeat and is kept.
    """
    if times_sampled > 1:
      return True
    if unroll_id in self._ids:
      return False
    self._ids.add(unroll_id)
    self._order.append(unroll_id)
    if len(self._order) > _REMEMBERED:
      self._ids.remove(self._order.popleft())
    return True
