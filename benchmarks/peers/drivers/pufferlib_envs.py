"""The environments of PufferLib: Gymnasium's, as PufferLib runs them in one process."""

from __future__ import annotations

import collections
import functools
from typing import Any

import games
import gymnasium
import numpy as np
import pufferlib
import pufferlib.vector
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from pufferlib.emulation import GymnasiumPufferEnv

Returns = collections.deque[float]


class CartPole(pufferlib.PufferEnv):
  """Gymnasium's vectorised CartPole as one environment with many agents.

  PuffeRL leaves truncations out of its returns, so a truncated episode counts as terminated.
  """

  def __init__(self, num_envs: int, returns: Returns, buf: Any = None):
    """Initialises.

    Args:
      num_envs: number of agents.
      returns: gets the returns of episodes at their ends.
      buf: of PufferLib.
    """
    self._envs = CartPoleVectorEnv(num_envs)
    self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    self.single_action_space = self._envs.single_action_space
    self.num_agents = num_envs
    self._returns = returns
    self._running = np.zeros(num_envs)
    super().__init__(buf)

  def reset(self, seed: int | None = None) -> tuple[np.ndarray, list[Any]]:
    """Starts all episodes."""
    self.observations[:] = self._envs.reset(seed=seed)[0]
    return self.observations, []

  def step(self, actions: np.ndarray) -> tuple[Any, ...]:
    """Steps all; an episode's end starts the next one."""
    observations, rewards, terminated, truncated, _ = self._envs.step(actions)
    self.observations[:] = observations
    self.rewards[:] = rewards
    np.logical_or(terminated, truncated, out=self.terminals)
    self._running += rewards
    if self.terminals.any():
      self._returns.extend(self._running[self.terminals])
      self._running[self.terminals] = 0.0
    return self.observations, self.rewards, self.terminals, self.truncations, []

  def close(self) -> None:
    """Called by PufferLib."""
    self._envs.close()


class Watched(gymnasium.Wrapper):
  """An environment whose truncations count as terminations, and whose returns are kept."""

  def __init__(self, env: gymnasium.Env, returns: Returns):
    super().__init__(env)
    self._returns = returns
    self._running = 0.0

  def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Starts an episode."""
    self._running = 0.0
    return self.env.reset(**arguments)[0], {}

  def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """Steps; the emulator's information is dropped, of which PufferLib would take the means."""
    observation, reward, terminated, truncated, _ = self.env.step(action)
    self._running += float(reward)
    if terminated or truncated:
      self._returns.append(self._running)
    return observation, reward, terminated or truncated, False, {}


def make(settings: dict[str, Any], returns: Returns) -> Any:
  """Returns PufferLib's vectorised environment.

  Args:
    settings: the common settings.
    returns: gets the returns of episodes at their ends.
  """
  num_envs = settings['num_actors'] * settings['envs_per_actor']
  if settings['env'] == 'cartpole':
    given = {'num_envs': num_envs, 'returns': returns}
    return pufferlib.vector.make(CartPole, backend=pufferlib.PufferEnv, env_kwargs=given)
  creator = functools.partial(
    GymnasiumPufferEnv, env_creator=lambda: Watched(games.make(settings), returns)
  )
  return pufferlib.vector.make(creator, backend='Serial', num_envs=num_envs)
