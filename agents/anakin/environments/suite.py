"""What the adapters of other suites in JAX share.

Many suites begin the next episode within their step, so that the last observation of an episode is lost.
An adapter therefore gives two functions without that: one that begins an episode, and one that steps.
This class makes the rows of them, and counts the steps of a time limit.
"""

from __future__ import annotations

import abc
import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.anakin.environment import as_arrays, begin_episode, transition
from agents.anakin.environments import errors
from agents.types import Array, Nest, Timestep

# A time limit that no episode reaches, for suites whose own limit is replaced by the one here.
NEVER = 2**31 - 1


class Moved(NamedTuple):
  """What a step of a suite returns. `reward` and the flags are `[]`."""

  state: Any
  observation: Any
  reward: Array
  terminated: Array
  truncated: Array | bool = False


class SuiteState(NamedTuple):
  """A state of a suite, and the clock of the time limit."""

  suite: Any
  steps: Array  # int32 `[]`, of the episode so far.


class SuiteEnvironment(abc.ABC):
  """One environment of a suite, as a `JaxEnvironment`.

  In an observation, a named tuple or a dataclass becomes a dictionary. Floats become float32, and other
  dtypes stay.
  """

  def __init__(self, name: str, action_spec: dm_env.specs.Array, max_episode_steps: int = 0):
    """Finds out the observations' shapes, for which `_begin` and `_move` must be ready.

    Args:
      name: of the environment, for errors.
      action_spec: of one action.
      max_episode_steps: steps after which an episode is truncated; 0 for no limit but the suite's own.

    Raises:
      ValueError: the limit is negative, or a step has more than one reward; one sentence.
    """
    if max_episode_steps < 0:
      raise errors.negative_limit(max_episode_steps)
    self.action_spec = action_spec
    self._max_episode_steps = max_episode_steps
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, timestep = jax.eval_shape(self.reset, key)
    action = jax.ShapeDtypeStruct(action_spec.shape, action_spec.dtype)
    moved = jax.eval_shape(self._move, state.suite, action, key)
    if np.shape(moved.reward):
      raise ValueError(
        f'--env={name} has {moved.reward.size} rewards in a step, one for each of its agents; Anakin '
        'plays environments of one agent.'
      )
    self.observation_spec: Nest = jax.tree.map(
      lambda x: dm_env.specs.Array(x.shape, x.dtype, 'observation'), timestep.observation
    )

  def reset(self, key: Array) -> tuple[SuiteState, Timestep]:
    """Begins an episode. See `JaxEnvironment`."""
    state, observation = self._begin(key)
    return SuiteState(as_arrays(state), jnp.int32(0)), begin_episode(self._observe(observation))

  def step(self, state: SuiteState, action: Array, key: Array) -> tuple[SuiteState, Timestep]:
    """Steps, without the suite's own reset. See `JaxEnvironment`."""
    steps = state.steps + 1
    # Some suites write into the dictionaries of the state that they get.
    own = jax.tree.map(lambda x: x, state.suite)
    moved = self._move(own, action, key)
    truncated = jnp.asarray(moved.truncated, bool)
    if self._max_episode_steps:
      truncated |= steps >= self._max_episode_steps
    timestep = transition(
      self._observe(moved.observation), moved.reward, jnp.asarray(moved.terminated, bool), truncated
    )
    return SuiteState(as_arrays(moved.state), steps), timestep

  @abc.abstractmethod
  def _begin(self, key: Array) -> tuple[Any, Any]:
    """Returns the suite's state at the start of an episode, and its observation."""

  @abc.abstractmethod
  def _move(self, state: Any, action: Array, key: Array) -> Moved:
    """Steps; never begins an episode."""

  def _observe(self, observation: Any) -> Nest:
    """Returns an observation of the suite as a nest of arrays."""
    return as_nest(observation)


def as_nest(observation: Any) -> Nest:
  """Returns a suite's observation with its named tuples and dataclasses as dictionaries."""
  if dataclasses.is_dataclass(observation):
    names = [field.name for field in dataclasses.fields(observation)]
    observation = {name: getattr(observation, name) for name in names}
  elif hasattr(observation, '_asdict'):
    observation = observation._asdict()
  if isinstance(observation, Mapping):
    return {str(name): as_nest(part) for name, part in observation.items()}
  if isinstance(observation, tuple | list):
    return tuple(as_nest(part) for part in observation)
  array = jnp.asarray(observation)
  dtype = jnp.float32 if jnp.issubdtype(array.dtype, jnp.floating) else array.dtype
  return jnp.asarray(array, dtype)


def discrete(num_values: int) -> dm_env.specs.DiscreteArray:
  """Returns the spec of an int32 action from 0 to `num_values - 1`."""
  return dm_env.specs.DiscreteArray(int(num_values), np.int32, 'action')


def arguments(name: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
  """Returns options as arguments of a suite.

  Args:
    name: of the environment, for errors.
    given: values by option, in the types that their texts look like.
    known: the suite's options and their defaults; an int is also taken for a float, and for None.

  Raises:
    ValueError: an option is unknown or has no value of its type; one sentence.
  """
  found = {}
  for key, value in given.items():
    if key not in known:
      close = difflib.get_close_matches(key, known, n=1)
      hint = f'; did you mean {close[0]}?' if close else ''
      listed = ', '.join(f'{option}={default}' for option, default in known.items())
      raise ValueError(
        f'--env_options={key}: {name} has no such option{hint} (its options and their defaults: '
        f'{listed or "none"}).'
      )
    kind = int if known[key] is None else type(known[key])
    if kind is float and type(value) is int:
      value = float(value)
    if type(value) is not kind:
      wanted = {bool: 'true or false', int: 'an integer', float: 'a number', str: 'a text'}[kind]
      raise ValueError(f'--env_options={key}={value}: {key} must be {wanted}.')
    found[key] = value
  return found


def defaults(constructor: Callable[..., Any]) -> dict[str, Any]:
  """Returns the parameters of a constructor that an option can set, with their defaults.

  Those are bools, numbers and texts, and what is an int or None.
  """
  return {
    p.name: p.default
    for p in inspect.signature(constructor).parameters.values()
    if type(p.default) in (bool, int, float, str)
    or (p.default is None and 'int' in str(p.annotation))
  }
