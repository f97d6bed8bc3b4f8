"""When a node's next checkpoint is due, and which ones are late."""

from __future__ import annotations

import time
from collections.abc import Callable

from absl import logging


class CheckpointSchedule:
  """Begins a checkpoint each period, unless the previous one is still being written.

  Attributes:
    missed: periods without a new checkpoint for that reason, as on a disk that has stalled.
  """

  def __init__(self, period: float, clock: Callable[[], float] = time.monotonic):
    """Initialises with seconds between checkpoints, 0 for none, and a function that returns the time."""
    self._period = period
    self._clock = clock
    self._began = self._said = clock()
    self.missed = 0

  def due(self, busy: bool) -> bool:
    """Returns whether to begin a checkpoint now; mostly costs one clock reading.

    Args:
      busy: whether the previous one is still being written. Once a period, that is logged and counted.
    """
    now = self._clock()
    if not self._period or now - self._began < self._period:
      return False
    if not busy:
      self._began = self._said = now
      return True
    if now - self._said >= self._period:
      self._said = now
      self.missed += 1
      logging.error(
        'a checkpoint is late: the one before is not written after %.0f s', now - self._began
      )
    return False
