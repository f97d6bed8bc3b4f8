"""Merges the requests of many actors into batches."""

from __future__ import annotations

import collections
import threading
import time
from typing import Generic, Protocol, TypeVar


class Request(Protocol):
  """What a batcher must know of a request."""

  @property
  def rows(self) -> int:
    """Environments in it."""


R = TypeVar('R', bound=Request)


class Batcher(Generic[R]):
  """Requests to one device, merged into batches.

  A batch may leave when the next request would not fit, when `timeout` seconds have passed since its
  first request came, or at once when every live stream is already waiting or being served, because
  then no other request can join it.

  One thread at a time puts requests in and takes batches out; any may say that one is `served`.

  Attributes:
    live_streams: how many streams could have a request under way.
  """

  def __init__(self, max_rows: int, timeout: float):
    """Initialises a batcher.

    Args:
      max_rows: environments in a batch at most; no request may be larger.
      timeout: seconds that a request may wait for company.
    """
    self._max_rows = max_rows
    self._timeout = timeout
    self._waiting: collections.deque[tuple[float, R]] = collections.deque()
    self._being_served = 0
    self._counting = threading.Lock()
    self.live_streams = 1 << 30

  def put(self, request: R) -> None:
    """Adds a request."""
    self._waiting.append((time.monotonic() + self._timeout, request))

  def take(self) -> list[R]:
    """Returns the next batch if it may leave now, [] if not."""
    if not self._waiting:
      return []
    count, full = self._fitting()
    all_waiting = len(self._waiting) + self._being_served >= self.live_streams
    if not (full or all_waiting or self.seconds_left() == 0.0):
      return []
    with self._counting:
      self._being_served += count
    return [self._waiting.popleft()[1] for _ in range(count)]

  def served(self, batch: list[R]) -> None:
    """Says that a batch has its answers."""
    with self._counting:
      self._being_served -= len(batch)

  def seconds_left(self) -> float | None:
    """Returns after how many seconds the next batch leaves in any case; None if no request waits."""
    if not self._waiting:
      return None
    return max(0.0, self._waiting[0][0] - time.monotonic())

  def _fitting(self) -> tuple[int, bool]:
    """How many waiting requests fit in a batch, and whether they leave no room for another."""
    rows = 0
    for count, (_, request) in enumerate(self._waiting):
      rows += request.rows
      if rows == self._max_rows:
        return count + 1, True
      if rows > self._max_rows:
        return count, True
    return len(self._waiting), False


def bucket_sizes(smallest: int, largest: int) -> list[int]:
  """Returns the batch shapes that inference is compiled for: `smallest` doubled up to `largest`."""
  sizes = []
  size = smallest
  while size < largest:
    sizes.append(size)
    size *= 2
  return [*sizes, largest]
