"""Catch whose steps take long, for a run whose bottleneck is its environments."""

import time

from environments.catch import Catch


class SlowCatch(Catch):
  def __init__(self, num_envs, seed, seconds):
    super().__init__(num_envs, seed, rows=10, columns=5)
    self._seconds = seconds

  def step(self, action):
    time.sleep(self._seconds)  # What the environment costs; no test waits by this.
    return super().step(action)


def make(task, num_envs, seed, *, milliseconds=20.0):
  return SlowCatch(num_envs, seed, milliseconds / 1e3)
