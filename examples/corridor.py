"""An environment: a slippery corridor with a reward of 1 at its far end."""

import dm_env
import numpy as np
from dm_env import specs

from environments.dm import DmEnvBatch
from environments.seeding import spawn


class Corridor(dm_env.Environment):
  def __init__(self, length, seed):
    self._length, self._rng = length, np.random.default_rng(seed)
    self._views = np.eye(length, dtype=np.float32)

  def reset(self):
    self._place, self._steps_left = 0, 5 * self._length
    return dm_env.restart(self._views[0])

  def step(self, action):  # 1 is right, 0 is left; one step in ten moves the other way.
    if not self._steps_left:  # The episode has ended: begin the next.
      return self.reset()
    right = bool(action) != (self._rng.random() < 0.1)
    self._place = max(self._place + (1 if right else -1), 0)
    there = self._place == self._length - 1
    self._steps_left = 0 if there else self._steps_left - 1
    end = dm_env.transition if self._steps_left else dm_env.truncation
    return (dm_env.termination if there else end)(float(there), self._views[self._place])

  def observation_spec(self):
    return specs.Array((self._length,), np.float32)

  def action_spec(self):
    return specs.DiscreteArray(2)


def make(task, num_envs, seed, *, length=8):
  return DmEnvBatch([Corridor(length, s) for s in spawn(seed, num_envs)])
