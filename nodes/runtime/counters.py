"""Counters of acting: steps, and returns and lengths of finished episodes."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from acme.utils import counting


class ActingTotals(NamedTuple):
  """Sums over training environments since a start."""

  actor_steps: float = 0.0
  episodes: float = 0.0
  return_sum: float = 0.0  # Of raw returns.
  length_sum: float = 0.0  # In actor steps.

  def minus(self, other: ActingTotals) -> ActingTotals:
    """Returns the difference from `other`."""
    return ActingTotals(*(a - b for a, b in zip(self, other, strict=True)))

  def plus(self, other: ActingTotals) -> ActingTotals:
    """Returns the sum with `other`."""
    return ActingTotals(*(a + b for a, b in zip(self, other, strict=True)))


class ActingCounters:
  """Accumulates acting totals and measures rates. Thread-safe."""

  def __init__(self, counter: counting.Counter, action_repeat: int):
    """Initialises the totals to zero.

    Args:
      counter: incremented by `actor_steps` and `environment_frames`; nonzero if the run was resumed.
      action_repeat: environment frames per actor step.
    """
    self._counter = counter
    self._action_repeat = action_repeat
    self._lock = threading.Lock()
    self._totals = ActingTotals()
    self._measured = ActingTotals()
    self._measured_steps = self.actor_steps

  @property
  def actor_steps(self) -> int:
    """The counter's `actor_steps`."""
    return int(self._counter.get_counts().get('actor_steps', 0))

  def add(self, new: ActingTotals) -> None:
    """Adds the totals since the last call."""
    with self._lock:
      self._totals = self._totals.plus(new)
    steps = int(new.actor_steps)
    self._counter.increment(actor_steps=steps, environment_frames=steps * self._action_repeat)

  def totals(self) -> ActingTotals:
    """Returns the sum of all `add` calls."""
    with self._lock:
      return self._totals

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns the counters, and rates and means over the last `seconds`."""
    totals, steps = self.totals(), self.actor_steps
    new, self._measured = totals.minus(self._measured), totals
    new_steps, self._measured_steps = steps - self._measured_steps, steps
    mean: Any = lambda total: total / new.episodes if new.episodes else float('nan')  # noqa: E731
    return {
      'actor_steps': float(steps),
      'environment_frames': float(steps * self._action_repeat),
      'actor_steps_per_second': new_steps / seconds,
      'environment_frames_per_second': new_steps * self._action_repeat / seconds,
      'episodes': new.episodes,
      'episode_return': mean(new.return_sum),
      'episode_length': mean(new.length_sum),
    }
