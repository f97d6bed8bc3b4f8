"""Nests of Gymnasium's vector environments as one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from environments.nests import ACTION_MASK

_Flatten = Callable[[Any], np.ndarray]


class Flattened(VectorWrapper):
  """A vector environment whose observations are one vector, apart from an action mask.

  The vector follows the rule of `gymnasium.spaces.flatten`. An environment with an action mask in its
  Dict shows `{'observation': vector, 'action_mask': mask}`.
  """

  def __init__(self, env: VectorEnv):
    """Wraps an environment whose observations are a Dict or a Tuple.

    Raises:
      ValueError: a part of the space has no vector of a fixed size.
    """
    super().__init__(env)
    space: Any = env.single_observation_space
    self._rest, self._has_mask = space, False
    if isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces and len(space) > 1:
      self._rest = spaces.Dict({key: part for key, part in space.items() if key != ACTION_MASK})
      self._has_mask = True
    vector = spaces.flatten_space(self._rest)
    if not isinstance(vector, spaces.Box):
      raise ValueError(f'the observation space is {space}, which has no array form')
    self._dtype, self._flatten = vector.dtype, _flatten_of(self._rest, env.num_envs)
    self.single_observation_space = (
      spaces.Dict({'observation': vector, ACTION_MASK: space[ACTION_MASK]})
      if self._has_mask
      else vector
    )

  def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
    """Resets all environments."""
    observation, info = self.env.reset(seed=seed, options=options)
    return self._shown(observation), info

  def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Steps all environments."""
    observation, reward, terminated, truncated, info = self.env.step(actions)
    return self._shown(observation), reward, terminated, truncated, info

  def _shown(self, observation: Any) -> Any:
    vector = self._flatten(observation).astype(self._dtype, copy=False)
    if self._has_mask:
      return {'observation': vector, ACTION_MASK: observation[ACTION_MASK]}
    return vector


def _flatten_of(space: spaces.Space, num_envs: int) -> _Flatten:
  """Returns a function from a batch of a space's values to `[N, D]`."""
  if isinstance(space, spaces.Dict | spaces.Tuple):
    named = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
    parts: list[tuple[Any, _Flatten]] = [(key, _flatten_of(part, num_envs)) for key, part in named]
    return lambda batch: np.concatenate([part(batch[key]) for key, part in parts], axis=-1)
  if isinstance(space, spaces.Box | spaces.MultiBinary):
    return lambda batch: np.reshape(batch, (num_envs, -1))
  if isinstance(space, spaces.Discrete):
    labels = np.arange(space.start, space.start + space.n)
    return lambda batch: np.asarray(batch)[:, None] == labels
  return lambda batch: np.stack([np.asarray(spaces.flatten(space, row)) for row in batch])
