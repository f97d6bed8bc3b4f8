"""The threads that run the handlers of a server."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from courier.sparing import SparingLog


class Pool:
  """Runs work in a limited number of daemon threads, which start once they are needed."""

  def __init__(self, size: int):
    """Initialises a pool of at most `size` threads."""
    self._size = max(1, size)
    self._threads: list[threading.Thread] = []
    self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
    self._lock = threading.Lock()
    self._unfinished = 0
    self._progress = 0.0  # When work was last taken or finished.
    self._log = SparingLog(logging.getLogger(__name__))

  def put(self, work: Callable[[], None]) -> None:
    """Has a thread run `work`, which raises nothing, once one is free. Only one thread may call it.

    Raises:
      RuntimeError: the system allows no thread at all; nothing will run `work`.
    """
    with self._lock:
      self._unfinished += 1
      if self._unfinished == 1:
        self._progress = time.monotonic()
      starts = len(self._threads) < min(self._unfinished, self._size)
    if starts:
      self._start()
    self._work.put(work)

  @property
  def num_waiting(self) -> int:
    """How much work no thread has taken yet."""
    return max(0, self._unfinished - self._size)

  def is_stuck(self, seconds: float) -> bool:
    """Returns whether work waits and no thread has finished any for some seconds."""
    return bool(self.num_waiting) and time.monotonic() - self._progress > seconds

  def is_own_thread(self) -> bool:
    """Returns whether the caller is one of the threads."""
    return threading.current_thread() in self._threads

  def close(self) -> None:
    """Waits until all work is finished and ends the threads. `put` must not be called any more."""
    for _ in self._threads:
      self._work.put(None)
    for thread in self._threads:
      thread.join()

  def _start(self) -> None:
    """Starts another thread; if the system allows no more, those that run have to do."""
    name = f'courier-handler-{len(self._threads)}'
    self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
    try:
      self._threads[-1].start()
    except RuntimeError as error:
      self._threads.pop()
      if not self._threads:
        with self._lock:
          self._unfinished -= 1
        raise
      self._log.warn('start', f'{len(self._threads)} thread(s) run all calls: {error}')

  def _run(self) -> None:
    while (work := self._work.get()) is not None:
      work()
      del work  # It may hold the arrays of a call.
      with self._lock:
        self._unfinished -= 1
        self._progress = time.monotonic()
