"""Merges the requests of many actors into batches, which are served by the threads that bring them."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import Any

from agents.types import Timestep


class Closed(Exception):
  """No more requests are answered."""


class Request:
  """One stream's timestep on its way to a device, and then its answer.

  Attributes:
    timestep: fields are `[N, ...]`.
    first_slot: the stream's environments are slots `first_slot .. first_slot + N` of the device.
    wipe: whether the slots' core state is to be forgotten first.
    rows: environments in the request.
    deadline: until when it waits for company, on `time.monotonic`.
    answered: whether there is an answer or an error.
  """

  def __init__(self, timestep: Timestep, first_slot: int, wipe: bool):
    self.timestep = timestep
    self.first_slot = first_slot
    self.wipe = wipe
    self.rows = len(timestep.step_type)
    self.deadline = 0.0
    self.answered = False
    self._answer: Any = None
    self._error: BaseException | None = None
    self._batch: list[Request] = []
    self._news = threading.Lock()  # Free when there is something for the thread that waits.
    self._news.acquire()

  def resolve(self, answer: Any = None, error: BaseException | None = None) -> None:
    """Sets the answer or the error, and wakes the thread that waits for it."""
    self._answer, self._error, self.answered = answer, error, True
    self._news.release()

  def lead(self, batch: list[Request]) -> None:
    """Wakes the thread that waits for the answer, to serve a batch first."""
    self._batch = batch
    self._news.release()

  def wait(self, timeout: float) -> list[Request]:
    """Waits for the answer or a batch to lead, -1 for ever; returns the batch, [] without one."""
    if not self._news.acquire(timeout=timeout):
      return []
    batch, self._batch = self._batch, []
    return batch

  def result(self) -> Any:
    """Returns the answer or raises the error."""
    if self._error is not None:
      raise self._error
    return self._answer


class Batcher:
  """Requests to one device, each in a thread of its own, merged into batches.

  A batch leaves when the next request would not fit, when `timeout` seconds have passed since its first
  request came, or at once when every live stream is already waiting or being served, because then nobody
  is left to wait for. The thread whose request completes a batch serves it, so that no other needs to be
  woken for that.

  Attributes:
    live_streams: how many streams could have a request under way.
  """

  def __init__(
    self,
    serve: Callable[[list[Request]], None],
    max_rows: int,
    timeout: float,
    max_in_flight: int = 2,
  ):
    """Initialises a batcher.

    Args:
      serve: resolves every request of a batch.
      max_rows: environments in a batch at most; no request may be larger.
      timeout: seconds that a request may wait for company.
      max_in_flight: batches that are served at once, at most.
    """
    self._serve = serve
    self._max_rows = max_rows
    self._timeout = timeout
    self._max_in_flight = max_in_flight
    self._waiting: collections.deque[Request] = collections.deque()
    self._being_served = 0
    self._in_flight = 0
    self._changed = threading.Condition(threading.Lock())
    self._closed = False
    self.live_streams = 1 << 30

  def answer(self, request: Request) -> Any:
    """Waits for the answer to a request, and serves batches meanwhile.

    Raises:
      Closed: after `close`.
      Exception: what `serve` resolved the request with.
    """
    with self._changed:
      if self._closed:
        raise Closed
      request.deadline = time.monotonic() + self._timeout
      self._waiting.append(request)
      batch = self._take()
    timeout = self._timeout
    while True:
      if batch:
        self._lead(batch)
      if request.answered:
        return request.result()
      batch = request.wait(timeout)
      if not batch and not request.answered:
        with self._changed:
          batch = self._take()
        timeout = -1  # If it has not left by now, then as many batches are served as may be.

  def close(self) -> None:
    """Refuses requests from now on, those that wait too, and waits for those being served."""
    with self._changed:
      self._closed = True
      for request in self._waiting:
        request.resolve(error=Closed())
      self._waiting.clear()
      self._changed.wait_for(lambda: not self._in_flight)

  def _lead(self, batch: list[Request]) -> None:
    try:
      self._serve(batch)
    finally:
      with self._changed:
        self._in_flight -= 1
        self._being_served -= len(batch)
        following = self._take()
        if self._closed:
          self._changed.notify_all()
      if following:
        following[0].lead(following)

  def _take(self) -> list[Request]:
    """Returns the next batch if it may leave now."""
    if not self._waiting or self._in_flight == self._max_in_flight:
      return []
    count, full = self._fitting()
    everybody = len(self._waiting) + self._being_served >= self.live_streams
    if not (full or everybody or self._waiting[0].deadline <= time.monotonic()):
      return []
    self._in_flight += 1
    self._being_served += count
    return [self._waiting.popleft() for _ in range(count)]

  def _fitting(self) -> tuple[int, bool]:
    """How many waiting requests fit in a batch, and whether they leave no room for another."""
    rows = 0
    for count, request in enumerate(self._waiting):
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
