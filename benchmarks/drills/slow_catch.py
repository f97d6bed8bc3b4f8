"""Catch with slow steps, for runs of hours that leave the machine mostly idle.

--env=benchmarks/drills/slow_catch.py:make --env_options=step_seconds=0.1
"""

from __future__ import annotations

import time

import dm_env
import numpy as np

from environments import catch, errors


class SlowCatch(catch.Catch):
  """`N` games of Catch that wait before every step."""

  def __init__(self, num_envs: int, seed: int, step_seconds: float):
    super().__init__(num_envs, seed)
    self._step_seconds = step_seconds

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Waits `step_seconds`, once for the whole batch, then steps. See the base class."""
    time.sleep(self._step_seconds)
    return super().step(action)


def make(task: str, num_envs: int, seed: int, *, step_seconds: float = 0.1) -> SlowCatch:
  """Makes N games of Catch.

  Args:
    task: must be empty.
    num_envs: N.
    seed: seed of the start columns of the balls.
    step_seconds: minimum seconds of a step of the batch.

  Raises:
    ValueError: `task` is not empty, or `step_seconds` is negative.
  """
  errors.reject_task('slow_catch', task)
  errors.require_option(step_seconds >= 0, 'step_seconds', step_seconds, 'be at least 0')
  return SlowCatch(num_envs, seed, step_seconds)
