"""Passes over unrolls that replay gives twice, because their writer had to send them twice.

A writer whose server dies sends what the server had not confirmed again, to the next life; some of it
may have been sampled already.
"""

from __future__ import annotations

import collections

import numpy as np

_REMEMBERED = 1 << 14


class DuplicateFilter:
  """Remembers the unrolls that were sampled last."""

  def __init__(self) -> None:
    self._ids: set[int] = set()
    self._order: collections.deque[int] = collections.deque()

  def keep_mask(self, unroll_ids: np.ndarray, times_sampled: np.ndarray) -> np.ndarray:
    """Returns which samples are to be learned from, bool `[B]`.

    Args:
      unroll_ids: int64 `[B]`.
      times_sampled: `[B]`, how often the server has given the item, this time included. From the second
        time on it means to.
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
