"""The environments of gymnax, a suite in JAX, with its own time limits."""

from __future__ import annotations

from typing import Any

import dm_env.specs
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces

from agents.anakin.environment import begin_episode, transition
from agents.anakin.environments import errors
from agents.types import Array, Nest, Timestep


class Gymnax:
  """One environment of gymnax; its time limit truncates episodes.

  Float and bool observations become float32, and Discrete ones one-hot; arrays keep their shape.
  """

  def __init__(self, environment: Any, params: Any, name: str):
    """Wraps an environment of gymnax.

    Args:
      environment: the environment from `gymnax.make`.
      params: its parameters from `gymnax.make`.
      name: for error messages.

    Raises:
      ValueError: actions are neither discrete nor a bounded array, or an observation is not one array.
    """
    actions = environment.action_space(params)
    observations = environment.observation_space(params)
    if not isinstance(observations, spaces.Discrete | spaces.Box):
      raise ValueError(f'--env={name} has observations {observations}, which are not one array.')
    self._environment = environment
    self._params = params
    self._one_hot = observations.n if isinstance(observations, spaces.Discrete) else 0
    _, timestep = jax.eval_shape(self.reset, jax.eval_shape(lambda: jax.random.key(0)))
    self.observation_spec = dm_env.specs.Array(
      timestep.observation.shape, timestep.observation.dtype, 'observation'
    )
    self.action_spec = _action_spec(actions, name)

  def reset(self, key: Array) -> tuple[Nest, Timestep]:
    """Begins an episode. See `JaxEnvironment`."""
    observation, state = self._environment.reset_env(key, self._params)
    return as_arrays(state), begin_episode(self._observe(observation))

  def step(self, state: Nest, action: Array, key: Array) -> tuple[Nest, Timestep]:
    """Steps, without gymnax's own reset. See `JaxEnvironment`."""
    observation, state, reward, terminated, _ = self._environment.step_env(
      key, state, action, self._params
    )
    truncated = self._environment.is_truncated(state, self._params)
    return as_arrays(state), transition(self._observe(observation), reward, terminated, truncated)

  def _observe(self, observation: Any) -> Array:
    if self._one_hot:
      return jax.nn.one_hot(observation, self._one_hot, dtype=jnp.float32)
    observation = jnp.asarray(observation)
    if observation.dtype == bool or jnp.issubdtype(observation.dtype, jnp.floating):
      return observation.astype(jnp.float32)
    return observation


def make(task: str, *, max_episode_steps: int = 0) -> Gymnax:
  """Makes one environment.

  Args:
    task: a gymnax id, such as CartPole-v1.
    max_episode_steps: steps after which an episode is truncated; 0 for the environment's own limit.

  Raises:
    ValueError: gymnax has no such id, the limit is negative, or a space has no array form.
  """
  known = gymnax.registered_envs
  if task not in known:
    raise errors.unknown_task('gymnax', task, known)
  if max_episode_steps < 0:
    raise ValueError(
      f'--env_options=max_episode_steps={max_episode_steps} must be 0, for the own limit, or more.'
    )
  environment, params = gymnax.make(task)
  if max_episode_steps:
    params = params.replace(max_steps_in_episode=max_episode_steps)
  return Gymnax(environment, params, f'gymnax:{task}')


def _action_spec(space: spaces.Space, name: str) -> dm_env.specs.Array:
  """Returns the spec of one int32 action from 0, or of one float32 action."""
  if isinstance(space, spaces.Discrete):
    return dm_env.specs.DiscreteArray(int(space.n), np.int32, 'action')
  if isinstance(space, spaces.Box) and jnp.issubdtype(space.dtype, jnp.floating):
    low, high = (
      np.broadcast_to(np.asarray(x, np.float32), space.shape) for x in (space.low, space.high)
    )
    if np.isfinite(low).all() and np.isfinite(high).all():
      return dm_env.specs.BoundedArray(space.shape, np.float32, low, high, 'action')
  raise ValueError(
    f'--env={name} has actions {space}; Anakin plays those that are Discrete or a bounded Box.'
  )


def as_arrays(state: Nest) -> Nest:
  """Returns a state without Python numbers, so that its dtypes are the same from every method."""
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), state)
