"""Merges the requests of many actors into batches."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

from agents.types import Timestep


@dataclasses.dataclass
class Request:
  """One stream's timestep on its way to a device, and then its answer.

  Attributes:
    timestep: fields are `[N, ...]`.
    first_slot: the stream's environments are slots `first_slot .. first_slot + N` of the device.
    wipe: whether the slots' core state is to be forgotten first.
    answer: what the device said, once `wait` returns True.
  """

  timestep: Timestep
  first_slot: int
  wipe: bool
  answer: Any = None
  error: BaseException | None = None
  _done: threading.Event = dataclasses.field(default_factory=threading.Event)

  @property
  def rows(self) -> int:
    """Environments in the request."""
    return len(self.timestep.step_type)

  def resolve(self, answer: Any = None, error: BaseException | None = None) -> None:
    """Sets the answer or the error and wakes the waiting handler."""
    self.answer, self.error = answer, error
    self._done.set()

  def wait(self) -> Any:
    """Blocks until the request is resolved; returns its answer or raises its error."""
    self._done.wait()
    if self.error is not None:
      raise self.error
    return self.answer


class Closed(Exception):
  """The queue is closed; no more batches will come."""


class RequestQueue:
  """Requests waiting for one device.

  A batch leaves when the next request would not fit, when `timeout` seconds have passed since its
  first request came, or at once when every live stream is already waiting or being served, because
  then nobody is left to wait for.
  """

  def __init__(
    self, max_rows: int, timeout: float, live_streams: Callable[[], int] = lambda: 1 << 30
  ):
    """Initialises a queue.

    Args:
      max_rows: environments in a batch at most; no request may be larger.
      timeout: seconds that a request may wait for company.
      live_streams: returns how many streams could have a request under way.
    """
    self._max_rows = max_rows
    self._timeout = timeout
    self._live_streams = live_streams
    self._waiting: collections.deque[tuple[float, Request]] = collections.deque()
    self._being_served = 0
    self._changed = threading.Condition()
    self._closed = False

  def put(self, request: Request) -> None:
    """Adds a request. After `close` it is resolved with `Closed` at once."""
    with self._changed:
      if self._closed:
        request.resolve(error=Closed())
        return
      self._waiting.append((time.monotonic(), request))
      self._changed.notify()

  def take(self) -> list[Request]:
    """Blocks until a batch is ready and returns it; pass it to `done` when it is answered.

    Raises:
      Closed: after `close`.
    """
    with self._changed:
      while not self._closed:
        if not self._waiting:
          self._changed.wait()
          continue
        count, full = self._fitting()
        everybody = len(self._waiting) + self._being_served >= self._live_streams()
        remaining = self._waiting[0][0] + self._timeout - time.monotonic()
        if full or everybody or remaining <= 0:
          self._being_served += count
          return [self._waiting.popleft()[1] for _ in range(count)]
        self._changed.wait(remaining)
      raise Closed

  def done(self, batch: list[Request]) -> None:
    """Notes that a batch has been answered."""
    with self._changed:
      self._being_served -= len(batch)
      self._changed.notify()

  def close(self) -> None:
    """Ends `take` in every thread and resolves what is waiting with `Closed`."""
    with self._changed:
      self._closed = True
      for _, request in self._waiting:
        request.resolve(error=Closed())
      self._waiting.clear()
      self._changed.notify_all()

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
