"""Drops duplicate unrolls that a writer sent twice.

If a replay server dies, its writers resend all unconfirmed unrolls to the next incarnation. The learner
may have sampled some of them already.
"""

from __future__ import annotations

import collections

import numpy as np

_REMEMBERED = 1 << 14


class DuplicateFilter:
  """Remembers the most recently sampled unrolls."""

  def __init__(self) -> None:
    self._ids: set[int] = set()
    self._order: collections.deque[int] = collections.deque()

  def keep_mask(self, unroll_ids: np.ndarray, times_sampled: np.ndarray) -> np.ndarray:
    """Returns which samples to train on, bool `[B]`.

    Args:
      unroll_ids: int64 `[B]`.
      times_sampled: `[B]`, how often the server has sampled the item, this time included. A value above
        1 is a deliberate repeat and is kept.
    """
    wanted = np.ones(len(unroll_ids), bool)
    for i, unroll_id in enumerate(unroll_ids.tolist()):
      if times_sampled[i] > 1:
        continue
      if unroll_id in self._ids:
        wanted[i] = False
        continue
      self._ids.add(unroll_id)
      self._order.append(unroll_id)
      if len(self._order) > _REMEMBERED:
        self._ids.remove(self._order.popleft())
    return wanted
