"""The share of the time between two measurements that went into something."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator


class TimeShare:
  """Times what a thread does, also while it goes on; that thread or another measures."""

  def __init__(self, clock: Callable[[], float] = time.monotonic):
    self._clock = clock
    self._lock = threading.Lock()
    self._began: float | None = None
    self._spent = self._measured = 0.0

  @contextlib.contextmanager
  def counted(self) -> Iterator[None]:
    """Counts the time in the context."""
    with self._lock:
      self._began = self._clock()
    try:
      yield
    finally:
      with self._lock:
        self._spent, self._began = self._so_far(), None

  def measure(self, seconds: float) -> float:
    """Returns the share since the last measurement, in [0, 1].

    Args:
      seconds: since then.
    """
    with self._lock:
      spent = self._so_far()
    share, self._measured = (spent - self._measured) / seconds, spent
    return min(1.0, share)

  def _so_far(self) -> float:
    return self._spent + (0.0 if self._began is None else self._clock() - self._began)
