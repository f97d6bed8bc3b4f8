"""Adapts a JAX environment to the interface of batched environments."""

from __future__ import annotations

import dm_env
import dm_env.specs
import jax
import numpy as np

from agents.anakin.environment import JaxEnvironment, next_rows
from agents.seeding import Seed
from agents.types import Array, Nest, Timestep
from environments.base import BatchedEnvironment


class JaxBatch(BatchedEnvironment):
  """Steps N copies of one environment in one compiled call."""

  def __init__(self, environment: JaxEnvironment, num_envs: int, seed: Seed):
    """Makes N copies of an environment.

    Args:
      environment: the environment.
      num_envs: N.
      seed: seed of the batch; each copy gets its own random keys.
    """
    self.num_envs = num_envs
    self._environment = environment
    self._keys = jax.random.split(seed.child('environments').key(), num_envs)
    self._steps = 0
    self._state: Nest = None
    self._step_type: Array = None

    def reset(keys: Array) -> tuple[Nest, Timestep]:
      return jax.vmap(lambda key: environment.reset(key))(_at(keys, 0))

    def step(
      state: Nest, step_type: Array, action: Array, keys: Array, count: int
    ) -> tuple[Nest, Timestep]:
      return next_rows(environment, state, step_type, action, _at(keys, count))

    self._reset = jax.jit(reset)
    self._step = jax.jit(step)

  def reset(self) -> dm_env.TimeStep:
    """Starts N episodes; every reset starts the same ones. See the base class."""
    self._steps = 0
    return self._take(*self._reset(self._keys))

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Steps all environments. See the base class."""
    self._steps += 1
    return self._take(*self._step(self._state, self._step_type, action, self._keys, self._steps))

  def observation_spec(self) -> Nest:
    """Returns the spec of one observation, or a nest of specs."""
    return self._environment.observation_spec

  def action_spec(self) -> dm_env.specs.Array:
    """Returns the spec of one action."""
    return self._environment.action_spec

  def _take(self, state: Nest, timestep: Timestep) -> dm_env.TimeStep:
    self._state, self._step_type = state, timestep.step_type
    return dm_env.TimeStep(*jax.device_get(timestep))


def _at(keys: Array, count: Array | int) -> Array:
  return jax.vmap(lambda key: jax.random.fold_in(key, count))(keys)
