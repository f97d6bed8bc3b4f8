"""An environment whose steps are nearly free: recorded screens of an Atari game, again and again."""

from __future__ import annotations

import functools

import dm_env
import numpy as np
from acme import specs

from environments import registry
from environments.base import BatchedEnvironment

_ACTIONS = 6
_SCREENS = 512
_EPISODE_STEPS = 1000


@functools.cache
def _recorded() -> np.ndarray:
  """Returns successive screens of Pong under random actions, uint8 `[screens, 84, 84]`."""
  environment = registry.make('atari:Pong', 1, 0, 'full_action_space=false')
  actions = np.random.default_rng(0).integers(_ACTIONS, size=(_SCREENS, 1), dtype=np.int32)
  environment.reset()
  screens = np.concatenate([environment.step(action).observation for action in actions])
  environment.close()
  return screens


class Screens(BatchedEnvironment):
  """`N` episodes of 1,000 steps, whose ends are spread. Observations are slices of one recording."""

  def __init__(self, num_envs: int, seed: int):
    self.num_envs = num_envs
    self._screens = np.concatenate([_recorded(), _recorded()[:num_envs]])
    self._step = 0
    rows = _EPISODE_STEPS - 1  # `reset` returns a FIRST row, so the next row is none.
    self._ages = 1 + (np.arange(num_envs) * rows // num_envs + seed) % rows
    self._reward = np.zeros(num_envs, np.float32)
    self._mid = np.full(num_envs, dm_env.StepType.MID, np.uint8)
    self._one = np.ones(num_envs, np.float32)

  def reset(self) -> dm_env.TimeStep:
    """Starts N episodes. See the base class."""
    first = np.full(self.num_envs, dm_env.StepType.FIRST, np.uint8)
    return dm_env.TimeStep(first, self._reward, self._one, self._screens[: self.num_envs])

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Returns the next screens; `action` changes nothing."""
    del action
    self._step += 1
    step_type, discount = self._mid, self._one
    age = (self._step + self._ages) % _EPISODE_STEPS
    if (age < 2).any():  # The LAST row, and the FIRST of the next episode.
      step_type = np.where(age == 0, 2, np.where(age == 1, 0, 1)).astype(np.uint8)
      discount = (age != 0).astype(np.float32)
    start = self._step % _SCREENS
    screens = self._screens[start : start + self.num_envs]
    return dm_env.TimeStep(step_type, self._reward, discount, screens)

  def observation_spec(self) -> specs.Array:
    """Returns uint8 `[84, 84]`."""
    return specs.Array(self._screens.shape[1:], np.uint8, 'observation')

  def action_spec(self) -> specs.DiscreteArray:
    """Returns the six actions of Pong."""
    return specs.DiscreteArray(_ACTIONS, np.int32, 'action')


def make(task: str, num_envs: int, seed: int) -> Screens:
  """Makes N environments; `task` is ignored."""
  del task
  return Screens(num_envs, seed)
