"""The one environment interface: a batch of environments that one call steps together."""

from __future__ import annotations

import abc
from collections.abc import Callable

import dm_env
import numpy as np
from acme import specs


class Exhausted(Exception):
  """There is nothing more to play: the experiment is over, and with it the program."""


class BatchedEnvironment(abc.ABC):
  """`N` environments of one kind in lockstep, with dm_env's semantics for each of them.

  `reset` and `step` return a `dm_env.TimeStep` whose fields are arrays: step_type uint8 `[N]`, reward
  float32 `[N]`, discount float32 `[N]`, observation `[N, ...]`. An environment that returned LAST
  starts its next episode at the next `step`: it ignores the action and returns FIRST, with reward 0
  and discount 1. Termination is LAST with discount 0, truncation is LAST with discount 1. Rewards are
  raw. The returned arrays are the caller's to keep.

  Attributes:
    num_envs: N.
    action_repeat: frames of the environment behind one step.
    protocol: what a score depends on and its name does not say, in one line.
    game_over: where an episode is less than a game, which is what scores are of: bool `[N]`, whether a
      game ended with the latest timestep, its LAST row or, rarely, the step before a FIRST one. None
      where every episode is a game.
  """

  num_envs: int
  action_repeat: int = 1
  protocol: str = ''
  game_over: np.ndarray | None = None

  @abc.abstractmethod
  def reset(self) -> dm_env.TimeStep:
    """Starts an episode in every environment; all step types are FIRST."""

  @abc.abstractmethod
  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Steps all environments.

    Args:
      action: `[N, ...]` in the dtype of the action spec.

    Raises:
      Exhausted: at the end of an experiment that has one.
    """

  @abc.abstractmethod
  def observation_spec(self) -> specs.Array:
    """Returns the spec of one environment's observation, a single array."""

  @abc.abstractmethod
  def action_spec(self) -> specs.Array:
    """Returns the spec of one action: int32 DiscreteArray, or float32 BoundedArray, both finite."""

  def render(self) -> np.ndarray | None:
    """Returns a picture of the first environment, uint8 `[height, width, 3]`; None if it has none.

    Where the observation is a picture itself, nothing else is needed.
    """
    return None

  def close(self) -> None:  # noqa: B027  most environments hold nothing
    """Releases what the environments hold."""

  def spec(self) -> specs.EnvironmentSpec:
    """Returns acme's description of one environment of the batch."""
    return specs.EnvironmentSpec(
      observations=self.observation_spec(),
      actions=self.action_spec(),
      rewards=specs.Array((), np.float32, 'reward'),
      discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
    )


def describe(
  make_environment: Callable[[int, int], BatchedEnvironment],
) -> tuple[specs.EnvironmentSpec, int]:
  """Returns the spec of one environment and its action repeat, from one that is closed again.

  Args:
    make_environment: takes (number of environments, seed).
  """
  environment = make_environment(1, 0)  # Nothing is played in it.
  try:
    return environment.spec(), environment.action_repeat
  finally:
    environment.close()
