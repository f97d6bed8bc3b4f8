"""Logs why a counter has stalled."""

from __future__ import annotations

import time
from collections.abc import Callable

from absl import logging


class StallWarning:
  """Logs an explanation whenever a counter has not changed for `seconds`."""

  def __init__(self, explain: Callable[[], str], seconds: float = 30.0):
    """Initialises with a function that returns the explanation, and the seconds to wait for it."""
    self._explain = explain
    self._seconds = seconds
    self._count = -1
    self._since = time.monotonic()

  def check(self, count: int) -> None:
    """Checks the current count; costs one clock reading."""
    now = time.monotonic()
    if count != self._count:
      self._count, self._since = count, now
    elif now - self._since > self._seconds:
      self._since = now
      logging.warning('no progress for %d s: %s', self._seconds, self._explain())
