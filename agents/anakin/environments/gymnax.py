"""The environments of gymnax, a suite in JAX, with its own time limits."""

from __future__ import annotations

from typing import Any

import dm_env.specs
import gymnax
import jax

from agents.anakin.environment import as_arrays, begin_episode, transition
from agents.anakin.environments import errors, gymnax_spaces
from agents.types import Array, Nest, Timestep


class Gymnax:
  """One environment of gymnax; its time limit truncates episodes.

  An observation of a Dict or a Tuple is a nest, with labels for its Discrete parts. A Discrete alone is
  one-hot. Floats and bools become float32; arrays keep their shape.
  """

  def __init__(self, environment: Any, params: Any, name: str):
    """Wraps an environment of gymnax.

    Args:
      environment: the environment from `gymnax.make`.
      params: its parameters from `gymnax.make`.
      name: for error messages.

    Raises:
      ValueError: actions are neither discrete nor a bounded array, or observations have no array form.
    """
    self._environment = environment
    self._params = params
    self._space = environment.observation_space(params)
    self._nest = gymnax_spaces.observation_spec(self._space, name)
    self.observation_spec = self._nest
    if not gymnax_spaces.is_nest(self._space):
      # The shape and dtype are those of the arrays: not every suite's Box has them.
      _, timestep = jax.eval_shape(self.reset, jax.eval_shape(lambda: jax.random.key(0)))
      found = timestep.observation
      self.observation_spec = dm_env.specs.Array(found.shape, found.dtype, 'observation')
    self.action_spec = gymnax_spaces.action_spec(environment.action_space(params), name)

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

  def _observe(self, observation: Any) -> Nest:
    if gymnax_spaces.is_nest(self._space):
      return gymnax_spaces.arrays(self._nest, observation)
    return gymnax_spaces.one_array(self._space, observation)


def make(task: str, *, max_episode_steps: int = 0) -> Gymnax:
  """Makes one environment.

  Args:
    task: a gymnax id, such as CartPole-v1.
    max_episode_steps: steps after which an episode is truncated; 0 for the environment's own limit.

  Raises:
    ValueError: gymnax has no such id or cannot fetch its data, the limit is negative, or a space has no
      array form.
  """
  known = gymnax.registered_envs
  if task not in known:
    raise errors.unknown_task('gymnax', task, known)
  if max_episode_steps < 0:
    raise errors.negative_limit(max_episode_steps, 'gymnax')
  try:
    environment, params = gymnax.make(task)
  except OSError as error:
    raise ValueError(
      f'--env=gymnax:{task}: gymnax cannot fetch its data ({error}); use another environment.'
    ) from error
  if max_episode_steps:
    number = type(params.max_steps_in_episode)  # A float in BernoulliBandit-misc.
    params = params.replace(max_steps_in_episode=number(max_episode_steps))
  return Gymnax(environment, params, f'gymnax:{task}')
