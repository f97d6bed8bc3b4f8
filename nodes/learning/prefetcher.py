"""Copies batches to the devices ahead of the learner."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any


class DevicePrefetcher:
  """Copies the next batch to the devices while the learner updates from the current one.

  It reads no batch while one waits: a batch in hand would grow older than one in a queue.
  """

  def __init__(self, batches: Iterable[Any], put: Callable[[Any], Any]):
    """Starts the prefetch thread.

    Args:
      batches: yields host batches; read from the prefetch thread.
      put: copies a host batch to the devices.
    """
    self._ready: queue.Queue[Any] = queue.Queue()
    self._thread = threading.Thread(
      target=self._run, args=(batches, put), name='prefetch', daemon=True
    )
    self._thread.start()

  def next(self, check: Callable[[], None], poll: float = 0.2) -> Any:
    """Returns the next batch; calls `check` every `poll` seconds while it waits."""
    while True:
      try:
        item = self._ready.get(timeout=poll)
      except queue.Empty:
        check()
        continue
      if isinstance(item, BaseException):
        raise item
      self._ready.task_done()
      return item

  def _run(self, batches: Iterable[Any], put: Callable[[Any], Any]) -> None:
    try:
      for batch in batches:
        self._ready.put(put(batch))
        self._ready.join()  # Until it is taken.
    except BaseException as error:
      self._ready.put(error)
