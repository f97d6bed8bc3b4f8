"""Games of several lives, each of which is an episode."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv


class LivesAsEpisodes(VectorEnv):
  """Ends an episode where a life is lost, and lets the game go on.

  As Mnih et al. 2015 and Espeholt et al. 2018 train: the emulator is reset at the end of a game only.
  The step after a lost life takes a fixed action in place of the agent's, and what it shows is the
  first observation of the next episode. What it is rewarded with arrives with the row after that, so
  that the rewards of a game add up to its score.

  A life counts as lost where some are left: at the last one it is the game that ends, which some games
  say a few steps after they show no life.

  Attributes:
    game_over: bool `[N]`, where a game has ended with the latest step; see `BatchedEnvironment`.
  """

  def __init__(self, vector_env: VectorEnv, first_action: int):
    """Takes over a vector environment; closing this closes it.

    Args:
      vector_env: resets itself at the step after the end of a game; its infos have `lives`; a call of
        `reset` with the option `reset_mask` resets some of it.
      first_action: taken in the first step of a further life.
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
    self._owed = np.zeros(self.num_envs, np.float64)
    return observation, info

  def step(
    self, actions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Steps all environments; `terminated` is true where a life was lost as well."""
    resumed = self._lost
    actions = np.where(resumed, np.asarray(self._first_action, actions.dtype), actions)
    observation, reward, terminated, truncated, info = self._env.step(actions)
    self.game_over = terminated | truncated
    cut = resumed & self.game_over
    if cut.any():  # The step that was to begin a life: the next game begins in its place.
      observation, info = self._env.reset(options={'reset_mask': cut})
    lives, goes_on = info['lives'], ~self.game_over
    self._lost = ~resumed & goes_on & (lives > 0) & (lives < self._lives)
    # One that is lost again at once is noticed at the step after.
    self._lives = np.where(resumed & goes_on, np.maximum(lives, self._lives), lives)
    arrived = np.where(resumed, 0.0, reward + self._owed)
    self._owed = np.where(resumed & goes_on, reward, 0.0)
    return observation, arrived, (terminated & ~cut) | self._lost, truncated & ~cut, info

  def close_extras(self, **kwargs: Any) -> None:
    """Closes the vector environment."""
    self._env.close(**kwargs)
