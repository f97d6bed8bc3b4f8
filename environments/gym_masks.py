"""Action masks that Gymnasium's environments put into `info`, as parts of observations."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from environments.nests import ACTION_MASK

_FIX = 'leave --env_options=action_mask out'


class InfoMask(VectorWrapper):
  """A vector environment whose observations have the `action_mask` of `info`, int8 `[A]`.

  A Dict has it as a further entry. Any other observation becomes `{'observation': observation,
  'action_mask': mask}`. Of MultiDiscrete actions the mask is that of the first, then of the second, and
  so on, whether `info` has one array or a tuple of them. In a row without a mask, all actions are legal.
  """

  def __init__(self, env: VectorEnv):
    """Wraps an environment, and resets it once to see the mask.

    Raises:
      ValueError: actions are not discrete, there is no mask in `info`, it has not an entry for each
        action, or observations already have one; one sentence.
    """
    super().__init__(env)
    actions, shown = env.single_action_space, env.single_observation_space
    if not isinstance(actions, spaces.Discrete | spaces.MultiDiscrete):
      raise ValueError(f'the actions are {actions}, which have no action_mask: {_FIX}')
    if isinstance(shown, spaces.Dict) and ACTION_MASK in shown.spaces:
      raise ValueError(f'observations have an action_mask already: {_FIX}')
    self._num_actions = int(np.sum(actions.nvec if hasattr(actions, 'nvec') else actions.n))
    parts = {**shown.spaces} if isinstance(shown, spaces.Dict) else {'observation': shown}
    self._is_dict = isinstance(shown, spaces.Dict)
    parts[ACTION_MASK] = spaces.MultiBinary(self._num_actions)
    self.single_observation_space = spaces.Dict(parts)
    _, info = env.reset(seed=0)
    if ACTION_MASK not in info:
      raise ValueError(f'there is no action_mask in the info of reset(): {_FIX}')
    self._masks(info)

  def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
    """Resets all environments."""
    observation, info = self.env.reset(seed=seed, options=options)
    return self._shown(observation, info), info

  def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Steps all environments."""
    observation, reward, terminated, truncated, info = self.env.step(actions)
    return self._shown(observation, info), reward, terminated, truncated, info

  def _shown(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
    parts = observation if self._is_dict else {'observation': observation}
    return {**parts, ACTION_MASK: self._masks(info)}

  def _masks(self, info: dict[str, Any]) -> np.ndarray:
    """Returns the masks, int8 `[N, A]`, in a new array."""
    masks = np.ones((self.num_envs, self._num_actions), np.int8)
    if ACTION_MASK not in info:
      return masks
    has = info.get(f'_{ACTION_MASK}', np.ones(self.num_envs, bool))
    for i in np.flatnonzero(has):
      found = info[ACTION_MASK][i]
      mask = np.hstack(found) if isinstance(found, tuple | list) else np.asarray(found)
      if mask.shape != (self._num_actions,):
        raise ValueError(
          f'the action_mask in info is {list(mask.shape)}, but there are {self._num_actions} '
          f'actions: {_FIX}'
        )
      masks[i] = mask != 0
    return masks
