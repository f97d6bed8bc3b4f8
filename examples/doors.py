"""An environment of dictionaries: two parts tell which door is right, and a mask which are open."""

import dm_env
import numpy as np
from dm_env.specs import Array, DiscreteArray

from environments.dm import DmEnvBatch
from environments.seeding import spawn


class Doors(dm_env.Environment):
  def __init__(self, rooms, seed):
    self._rooms, self._rng = rooms, np.random.default_rng(seed)

  def reset(self):
    self._left = self._rooms
    return dm_env.restart(self._enter())

  def step(self, action):
    if not self._left:  # The episode has ended: begin the next.
      return self.reset()
    assert self._open[action], 'An agent that obeys the mask never chooses a closed door.'
    self._left, reward = self._left - 1, float(action == self._right)
    return (dm_env.transition if self._left else dm_env.termination)(reward, self._enter())

  def _enter(self):  # The right door is that of the colour, or its opposite where the sign is -1.
    colour, sign = self._rng.integers(4), self._rng.choice([-1.0, 1.0])
    self._right = colour if sign > 0 else 3 - colour
    self._open = (self._rng.random(4) < 0.6) | (np.arange(4) == self._right)
    return {'colour': colour, 'sign': sign, 'action_mask': self._open}

  def observation_spec(self):
    return {'colour': DiscreteArray(4), 'sign': Array((), float), 'action_mask': Array((4,), bool)}

  def action_spec(self):
    return DiscreteArray(4)


def make(task, num_envs, seed, *, rooms=5):
  return DmEnvBatch([Doors(rooms, s) for s in spawn(seed, num_envs)], flatten=False)
