"""Hands the parts of a generation out to workers, and takes their results, each part's once."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import numpy as np
from absl import logging

from nodes.runtime import lifecycle, rpc

# What a worker has returned: returns float32 `[P, 2]` and lengths int32 `[P, 2]` of the episodes, and
# statistics of their observations, float32 `[S]`.
Played = tuple[np.ndarray, np.ndarray, np.ndarray]
_POLL_SECONDS = 0.05
_PATIENCE = 2.0  # A part is late after so many times the longest of the last replies.


@dataclasses.dataclass
class _Call:
  """A part that a worker plays."""

  future: futures.Future
  generation: int
  part: int
  began: float


class Dispatcher:
  """Gives each free worker the next part; a free one also repeats a part that is late.

  A part is played by whichever worker is free, and its result is the same on each. So a worker that has
  died, hangs or is slow delays a generation, and changes nothing: another one plays its part again. Of
  several results of a part the first counts.

  Attributes:
    repeated: parts so far that a second worker has begun.
    dropped: results so far that came too late to count.
  """

  def __init__(self, workers: Sequence[Any], clock: Callable[[], float] = time.monotonic):
    """Initialises with Courier clients of the workers, without a deadline of calls."""
    self._workers, self._clock = workers, clock
    self._calls: dict[int, _Call] = {}  # By worker, of this generation and of earlier ones.
    self._pauses: dict[int, Iterator[float]] = {}  # Of workers whose last call has failed.
    self._resting: dict[int, float] = {}  # Until when.
    self._seconds: collections.deque[float] = collections.deque(maxlen=1)
    self.repeated = self.dropped = 0

  def play(
    self,
    generation: int,
    vector: np.ndarray,
    parts: Sequence[np.ndarray],
    should_stop: Callable[[], bool],
  ) -> list[Played]:
    """Returns what the workers have returned for each part, in the order of the parts.

    Args:
      generation: its number.
      vector: the parameters, float32 `[D]`.
      parts: the seeds of the pairs of each part, uint32 `[P, K]`.
      should_stop: polled while it waits.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
      Exception: of a worker, unless it is or will be unavailable.
    """
    if self._seconds.maxlen != len(parts):
      self._seconds = collections.deque(self._seconds, maxlen=len(parts))
    played: dict[int, Played] = {}
    waiting = collections.deque(range(len(parts)))
    while True:
      for worker, call in list(self._calls.items()):
        if call.future.done():
          del self._calls[worker]
          self._take(worker, call, generation, parts, played, waiting)
      if len(played) == len(parts):
        return [played[part] for part in range(len(parts))]
      self._hand_out(generation, vector, parts, played, waiting)
      if should_stop():
        raise lifecycle.Stopped
      pending = [call.future for call in self._calls.values()]
      if pending:
        futures.wait(pending, _POLL_SECONDS, futures.FIRST_COMPLETED)
      else:
        time.sleep(_POLL_SECONDS)

  def _take(
    self,
    worker: int,
    call: _Call,
    generation: int,
    parts: Sequence[np.ndarray],
    played: dict[int, Played],
    waiting: collections.deque[int],
  ) -> None:
    """Takes the result of a call, or the news that there is none."""
    is_new = call.generation == generation and call.part not in played
    error = call.future.exception()
    if error is not None:
      if not rpc.is_transient(error):
        raise error
      logging.warning('worker %d is away: %s', worker, error)
      pauses = self._pauses.setdefault(worker, rpc.backoff())
      self._resting[worker] = self._clock() + next(pauses)
      if is_new and not self._is_out(generation, call.part):
        waiting.appendleft(call.part)
      return
    self._pauses.pop(worker, None)
    self._seconds.append(self._clock() - call.began)
    if is_new:
      played[call.part] = _checked(call.future.result(), len(parts[call.part]))
    else:
      self.dropped += 1

  def _hand_out(
    self,
    generation: int,
    vector: np.ndarray,
    parts: Sequence[np.ndarray],
    played: dict[int, Played],
    waiting: collections.deque[int],
  ) -> None:
    """Gives parts to free workers."""
    now = self._clock()
    for worker, client in enumerate(self._workers):
      if worker in self._calls or self._resting.get(worker, 0.0) > now:
        continue
      if waiting:
        part = waiting.popleft()
      else:
        late = self._latest(generation, played, now)
        if late is None:
          return
        part, self.repeated = late, self.repeated + 1
      future = client.futures.evaluate(vector, parts[part])
      self._calls[worker] = _Call(future, generation, part, now)

  def _latest(self, generation: int, played: dict[int, Played], now: float) -> int | None:
    """Returns the part that one worker has been playing for the longest time, if it is late."""
    out = [call for call in self._calls.values() if call.generation == generation]
    times = collections.Counter(call.part for call in out)
    alone = [call for call in out if times[call.part] == 1 and call.part not in played]
    if not alone or not self._seconds:
      return None
    oldest = min(alone, key=lambda call: call.began)
    is_late = now - oldest.began > _PATIENCE * max(self._seconds)
    return oldest.part if is_late else None

  def _is_out(self, generation: int, part: int) -> bool:
    """Returns whether a worker plays a part."""
    calls = self._calls.values()
    return any((call.generation, call.part) == (generation, part) for call in calls)


def _checked(result: Any, num_pairs: int) -> Played:
  """Returns what another node has sent; raises ValueError if it is not what a worker returns."""
  returns, lengths, seen = (np.asarray(array) for array in result)
  shapes = {array.shape for array in (returns, lengths)}
  if shapes != {(num_pairs, 2)} or not (np.isfinite(returns).all() and np.isfinite(seen).all()):
    raise ValueError(
      f'a worker has returned arrays {sorted(shapes)}, which must be finite and {(num_pairs, 2)}'
    )
  return returns, lengths, seen
