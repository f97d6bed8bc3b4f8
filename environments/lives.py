"""Games with several lives, each an episode."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv


class LivesAsEpisodes(VectorEnv):
  """Ends an episode at the loss of a life, while the game continues.

  As in Mnih et al. 2015 and Espeholt et al. 2018, the emulator is reset only at the end of a game. The
  step after a lost life takes a fixed action instead of the agent's; its observation is the first of the
  next episode. Its reward arrives with the following row, so the rewards of a game sum to its score. A
  game that ends with that very step loses it.

  A life counts as lost only while others are left. The loss of the last one ends the game, which some
  games report a few steps after they show no life.

  Attributes:
    game_over: bool `[N]`, whether a game ended with the latest step; see `BatchedEnvironment`.
  """

  def __init__(self, vector_env: VectorEnv, first_action: int):
    """Wraps a vector environment; closing the wrapper closes it.

    Args:
      vector_env: autoresets at the step after the end of a game; its infos have `lives`; its `reset`
        supports the option `reset_mask`, which selects the games to reset.
      first_action: the action in the first step of each later life of a game.
    """
    self.num_envs = vector_env.num_envs
    self.metadata = vector_env.metadata
    self.single_observation_space = vector_env.single_observation_space
    self.single_action_space = vector_env.single_action_space
    self.game_over = np.zeros(self.num_envs, bool)
    self._env = vector_env
    self._first_action = first_action

  def reset(
    self, *, seed: Any = None, options: dict[str, Any] | None = None
  ) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts a game in every environment."""
    observation, info = self._env.reset(seed=seed, options=options)
    self.game_over = np.zeros(self.num_envs, bool)
    self._lives = info['lives'].copy()
    self._lost = np.zeros(self.num_envs, bool)
    self._restarts = np.zeros(self.num_envs, bool)
    self._owed = np.zeros(self.num_envs, np.float64)
    return observation, info

  def step(
    self, actions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Steps all environments; `terminated` is also true where a life was lost."""
    resumed, restarted = self._lost, self._restarts
    actions = np.where(resumed, np.asarray(self._first_action, actions.dtype), actions)
    observation, reward, terminated, truncated, info = self._env.step(actions)
    self.game_over = terminated | truncated
    cut = resumed & self.game_over
    if cut.any():  # The game ended in the first step of a life: start the next game instead.
      observation, info = self._env.reset(options={'reset_mask': cut})
    self._restarts = self.game_over & ~cut  # With the next step.
    lives, goes_on = info['lives'], ~self.game_over
    self._lost = ~resumed & ~restarted & goes_on & (lives > 0) & (lives < self._lives)
    # A life lost in its first step is detected at the following step.
    self._lives = np.where(resumed & goes_on, np.maximum(lives, self._lives), lives)
    arrived = np.where(resumed, 0.0, reward + self._owed)
    self._owed = np.where(resumed & goes_on, reward, 0.0)
    return observation, arrived, (terminated & ~cut) | self._lost, truncated & ~cut, info

  def close_extras(self, **kwargs: Any) -> None:
    """Closes the vector environment."""
    self._env.close(**kwargs)
