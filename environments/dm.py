"""Scalar dm_env environments as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
import tree
from acme import specs

from environments.base import BatchedEnvironment


class DmEnvBatch(BatchedEnvironment):
  """Steps N scalar environments in sequence.

  Observations become single arrays. An array keeps its shape and dtype, except that floats become
  float32 and a scalar becomes `[1]`. A nest (dict, tuple) becomes one float32 vector: its leaves,
  in the order of dm-tree (dict keys sorted), raveled and concatenated.

  Actions: a discrete action, or an integer scalar bounded below by 0, becomes an int32
  DiscreteArray; a bounded float action becomes a float32 BoundedArray.
  """

  def __init__(
    self,
    environments: Sequence[dm_env.Environment],
    protocol: str = '',
    action_repeat: int = 1,
  ):
    """Initialises the batch.

    Args:
      environments: N environments with equal specs, each with its own seed.
      protocol: see the base class.
      action_repeat: environment steps per step of the batch, fewer where an episode ends. Their rewards
        are summed without discounting, so that returns stay raw; their discounts are multiplied. This
        equals a return discounted within the repeat if all discounts but the last are 1.

    Raises:
      ValueError: the action spec is none of the above.
    """
    self.num_envs = len(environments)
    self.protocol = protocol
    self.action_repeat = action_repeat
    self._environments = list(environments)
    observation_spec = environments[0].observation_spec()
    self._nested = tree.is_nested(observation_spec)
    blank = tree.map_structure(lambda leaf: np.zeros(leaf.shape, leaf.dtype), observation_spec)
    single = self._flatten(blank)
    self._observation_spec = specs.Array(single.shape, single.dtype, 'observation')
    self._action_spec = _action_spec(environments[0].action_spec())
    self._discrete = isinstance(self._action_spec, specs.DiscreteArray)

  def reset(self) -> dm_env.TimeStep:
    """Starts N episodes. See the base class."""
    return self._batch([environment.reset() for environment in self._environments])

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`. See the base class."""
    actions = action.tolist() if self._discrete else action
    return self._batch(
      [
        self._step(environment, a)
        for environment, a in zip(self._environments, actions, strict=True)
      ]
    )

  def observation_spec(self) -> specs.Array:
    """Returns the spec of the single array that an observation becomes."""
    return self._observation_spec

  def action_spec(self) -> specs.Array:
    """Returns the int32 or float32 spec of one action."""
    return self._action_spec

  def close(self) -> None:
    """Closes the N environments."""
    for environment in self._environments:
      environment.close()

  def _step(self, environment: dm_env.Environment, action: Any) -> dm_env.TimeStep:
    """Steps one environment `action_repeat` times or to LAST; a step after LAST only resets."""
    timestep = environment.step(action)
    reward, discount = timestep.reward, timestep.discount
    for _ in range(self.action_repeat - 1):
      if not timestep.mid():
        break
      timestep = environment.step(action)
      reward = reward + timestep.reward
      discount = discount * timestep.discount
    return timestep._replace(reward=reward, discount=discount)

  def _flatten(self, observation: Any) -> np.ndarray:
    """Returns one environment's observation as a single array; see the class docstring."""
    if self._nested:
      leaves = [np.ravel(leaf) for leaf in tree.flatten(observation)]
      return np.concatenate(leaves, dtype=np.float32, casting='unsafe')
    array = np.atleast_1d(observation)
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else array

  def _batch(self, timesteps: list[dm_env.TimeStep]) -> dm_env.TimeStep:
    """Stacks N timesteps; the None reward and discount of a FIRST timestep become 0 and 1."""
    observation = np.empty(
      (self.num_envs, *self._observation_spec.shape), self._observation_spec.dtype
    )
    for i, timestep in enumerate(timesteps):
      observation[i] = self._flatten(timestep.observation)
    return dm_env.TimeStep(
      step_type=np.array([timestep.step_type for timestep in timesteps], np.uint8),
      reward=np.array([0 if t.first() else t.reward for t in timesteps], np.float32),
      discount=np.array([1 if t.first() else t.discount for t in timesteps], np.float32),
      observation=observation,
    )


def _action_spec(spec: specs.Array) -> specs.Array:
  """Returns a dm_env action spec in the dtypes of the batched interface."""
  if isinstance(spec, specs.DiscreteArray):
    return specs.DiscreteArray(spec.num_values, np.int32, 'action')
  if isinstance(spec, specs.BoundedArray):
    if np.issubdtype(spec.dtype, np.floating):
      low = np.asarray(spec.minimum, np.float32)
      high = np.asarray(spec.maximum, np.float32)
      if np.isfinite(low).all() and np.isfinite(high).all():
        return specs.BoundedArray(spec.shape, np.float32, low, high, 'action')
    elif spec.shape == () and spec.minimum == 0:
      return specs.DiscreteArray(int(spec.maximum) + 1, np.int32, 'action')
  raise ValueError(f'--env: the actions are neither discrete nor bounded floats: {spec}')
