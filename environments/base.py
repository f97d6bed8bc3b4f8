"""The environment interface: a batch of environments, stepped together by one call."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
from acme import specs

from environments.nests import Nest


class Exhausted(Exception):
  """Raised at the end of an experiment with a fixed number of episodes; it ends the program."""


class BatchedEnvironment(abc.ABC):
  """`N` environments of one kind in lockstep, each with dm_env's semantics.

  `reset` and `step` return a `dm_env.TimeStep` whose fields are arrays: step_type uint8 `[N]`, reward
  float32 `[N]`, discount float32 `[N]`, observation `[N, ...]`. An observation may be a nest, a
  dictionary or tuple of such arrays. An environment that returned LAST starts its next episode at the
  next `step`: it ignores the action and returns FIRST, with reward 0 and discount 1. Termination is LAST
  with discount 0, truncation is LAST with discount 1. Rewards are raw. The caller owns the returned
  arrays.

  Attributes:
    num_envs: N.
    action_repeat: environment frames per step.
    protocol: settings that affect scores and are not in the environment's name, in one line.
    game_over: bool `[N]`, whether a game ended with the latest timestep: its LAST row or, rarely, the
      step before a FIRST row. Scores are those of games. None if every episode is a game.
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
      Exhausted: at the end of an experiment with a fixed number of episodes.
    """

  @abc.abstractmethod
  def observation_spec(self) -> Nest:
    """Returns the spec of one environment's observation, or a nest of specs.

    An entry `action_mask` of a dictionary says which actions are legal; see `agents.action_mask`.
    """

  @abc.abstractmethod
  def action_spec(self) -> specs.Array:
    """Returns the spec of one action: int32 DiscreteArray, or finite BoundedArray.

    A BoundedArray is float32, or int32 `[K]` from 0 for K discrete actions at once.
    """

  def render(self) -> np.ndarray | None:
    """Returns an image of the first environment, uint8 `[height, width, 3]`; None if it has none.

    Environments with image observations need not override it.
    """
    return None

  def close(self) -> None:  # noqa: B027  most environments hold no resources
    """Releases the environments' resources."""

  def spec(self) -> specs.EnvironmentSpec:
    """Returns the `acme.specs.EnvironmentSpec` of one environment of the batch."""
    return specs.EnvironmentSpec(
      observations=self.observation_spec(),
      actions=self.action_spec(),
      rewards=specs.Array((), np.float32, 'reward'),
      discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
    )


def discrete_spec(num_values: Any) -> specs.Array:
  """Returns the spec of one discrete action, or of several at once, int32.

  Args:
    num_values: the number of values, integer `[]` or `[K]`.
  """
  num_values = np.asarray(num_values)
  if not num_values.ndim:
    return specs.DiscreteArray(int(num_values), np.int32, 'action')
  return specs.BoundedArray(num_values.shape, np.int32, 0, num_values - 1, 'action')


def bounded_spec(shape: tuple[int, ...], low: Any, high: Any) -> specs.BoundedArray | None:
  """Returns the spec of one action of bounded floats, float32; None if a bound is not finite.

  Bounds are rounded inwards, so that an action is also within the bounds of another dtype.

  Args:
    shape: of the action.
    low: the smallest values, of that shape or `[]`.
    high: the largest values, likewise.
  """
  low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
  if not (np.isfinite(low).all() and np.isfinite(high).all()):
    return None
  least, most = low.astype(np.float32), high.astype(np.float32)
  least = np.where(least < low, np.nextafter(least, np.float32(np.inf)), least)
  most = np.where(most > high, np.nextafter(most, np.float32(-np.inf)), most)
  return specs.BoundedArray(shape, np.float32, least, most, 'action')


@dataclasses.dataclass(frozen=True)
class Described:
  """Takes the place of a function that makes environments where only their description is needed.

  Attributes:
    spec: of one environment.
    action_repeat: environment frames per step.
  """

  spec: specs.EnvironmentSpec
  action_repeat: int

  def __call__(self, num_envs: int, seed: int) -> BatchedEnvironment:
    """Raises RuntimeError: the environment needs another interpreter."""
    raise RuntimeError(
      'this node cannot make the environment, which needs the interpreter of actors'
    )


def describe(
  make_environment: Callable[[int, int], BatchedEnvironment],
) -> tuple[specs.EnvironmentSpec, int]:
  """Returns the spec and the action repeat of an environment, by making one and closing it.

  Args:
    make_environment: takes (number of environments, seed); a `Described` is not called.
  """
  if isinstance(make_environment, Described):
    return make_environment.spec, make_environment.action_repeat
  environment = make_environment(1, 0)  # Never stepped.
  try:
    return environment.spec(), environment.action_repeat
  finally:
    environment.close()
