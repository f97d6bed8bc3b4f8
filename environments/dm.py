"""Scalar dm_env environments as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
from acme import specs

from environments import observations, spec_fit
from environments.base import BatchedEnvironment, bounded_spec, discrete_spec
from environments.nests import Nest


class DmEnvBatch(BatchedEnvironment):
  """Steps N scalar environments in sequence.

  An observation that is an array keeps its shape and dtype, except that floats become float32 and a
  scalar becomes `[1]`. A nest (dict, tuple) without images becomes one float32 vector: its leaves, in
  the order of dm-tree (dict keys sorted), raveled and concatenated. An entry `action_mask` of a dict
  stays beside that vector, which is then the entry `observation`. With an image, or with
  `flatten=False`, a nest stays one; see `environments.observations.Nested`.

  Actions: a discrete action, or an integer scalar bounded below by 0, becomes an int32
  DiscreteArray; a vector of such integers an int32 BoundedArray; a bounded float action a float32
  BoundedArray.
  """

  def __init__(
    self,
    environments: Sequence[dm_env.Environment],
    protocol: str = '',
    action_repeat: int = 1,
    flatten: bool | None = None,
  ):
    """Initialises the batch.

    Args:
      environments: N environments with equal specs, each with its own seed.
      protocol: see the base class.
      action_repeat: environment steps per step of the batch, fewer where an episode ends. Their rewards
        are summed without discounting, so that returns stay raw; their discounts are multiplied. This
        equals a return discounted within the repeat if all discounts but the last are 1.
      flatten: whether a nest of observations becomes one vector; None: unless it has an image, see
        `environments.nests.is_image`.

    Raises:
      ValueError: the action spec is none of the above, or there is no list.
    """
    if isinstance(environments, dm_env.Environment):
      raise ValueError('DmEnvBatch takes a list of environments, one for each of num_envs')
    self.num_envs = len(environments)
    self.protocol = protocol
    self.action_repeat = action_repeat
    self._environments = list(environments)
    self._observations = observations.make(environments[0].observation_spec(), flatten)
    own = environments[0].action_spec()
    self._action_spec, self._action_dtype = _action_spec(own), own.dtype

  def reset(self) -> dm_env.TimeStep:
    """Starts N episodes. See the base class."""
    return self._batch('reset', [environment.reset() for environment in self._environments])

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`. See the base class."""
    actions = action.astype(self._action_dtype, copy=False)
    return self._batch(
      'step',
      [
        self._step(environment, a)
        for environment, a in zip(self._environments, actions, strict=True)
      ],
    )

  def observation_spec(self) -> Nest:
    """Returns the spec of what an observation becomes."""
    return self._observations.spec

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

  def _batch(self, method: str, timesteps: list[dm_env.TimeStep]) -> dm_env.TimeStep:
    """Stacks N timesteps; the None reward and discount of a FIRST timestep become 0 and 1.

    Raises:
      ValueError: an observation does not fit its spec; one sentence that names the method.
    """
    try:
      observation = self._observations.stack([timestep.observation for timestep in timesteps])
    except ValueError as error:
      returned = spec_fit.returned_by(getattr(self._environments[0], method))
      raise ValueError(f'{error} ({returned})') from error
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
      bounded = bounded_spec(spec.shape, spec.minimum, spec.maximum)
      if bounded is not None:
        return bounded
    elif len(spec.shape) < 2 and not np.any(spec.minimum):
      return discrete_spec(np.broadcast_to(np.asarray(spec.maximum) + 1, spec.shape))
  raise ValueError(
    f'the actions are neither discrete nor bounded floats: {spec}; use another environment'
  )
