"""Merges requests from many actors into batches."""

from __future__ import annotations

import collections
import threading
import time
from typing import Protocol


class Request(Protocol):
  """A request that a batcher can merge."""

  @property
  def rows(self) -> int:
    """Number of environments in the request."""


class Batcher[R: Request]:
  """Merges the requests to one device into batches.

  A batch is ready when one of these holds:

  * The next request would not fit.
  * `timeout` seconds have passed since its first request arrived.
  * Every live environment group already waits or is being served, so no other request can join.

  One thread at a time calls `put` and `take`; any thread may call `served`.

  Attributes:
    live_groups: number of environment groups that may have a request in flight.
  """

  def __init__(self, max_rows: int, timeout: float):
    """Initialises a batcher.

    Args:
      max_rows: maximum number of environments in a batch; no request may be larger.
      timeout: maximum seconds that a request waits for a fuller batch.
    """
    self._max_rows = max_rows
    self._timeout = timeout
    self._waiting: collections.deque[tuple[float, R]] = collections.deque()
    self._being_served = 0
    self._counting = threading.Lock()
    self.live_groups = 1 << 30

  def put(self, request: R) -> None:
    """Adds a request."""
    self._waiting.append((time.monotonic() + self._timeout, request))

  def take(self) -> list[R]:
    """Returns the next batch if it is ready, else []."""
    if not self._waiting:
      return []
    count, full = self._fitting()
    all_waiting = len(self._waiting) + self._being_served >= self.live_groups
    if not (full or all_waiting or self.seconds_left() == 0.0):
      return []
    with self._counting:
      self._being_served += count
    return [self._waiting.popleft()[1] for _ in range(count)]

  def served(self, batch: list[R]) -> None:
    """Marks a batch as replied to."""
    with self._counting:
      self._being_served -= len(batch)

  def seconds_left(self) -> float | None:
    """Returns the seconds until the next batch times out; None if no request waits."""
    if not self._waiting:
      return None
    return max(0.0, self._waiting[0][0] - time.monotonic())

  def _fitting(self) -> tuple[int, bool]:
    """Returns how many waiting requests fit in a batch, and whether that batch is full."""
    rows = 0
    for count, (_, request) in enumerate(self._waiting):
      rows += request.rows
      if rows == self._max_rows:
        return count + 1, True
      if rows > self._max_rows:
        return count, True
    return len(self._waiting), False


def bucket_sizes(smallest: int, largest: int) -> list[int]:
  """Returns the batch sizes to compile inference for: `smallest`, doubled up to `largest`."""
  sizes = []
  size = smallest
  while size < largest:
    sizes.append(size)
    size *= 2
  return [*sizes, largest]
