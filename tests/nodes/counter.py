"""An environment that counts its steps and an agent whose state counts its calls.

Observation and state agree if, and only if, every state is stored, reset and handed on with the right
row.
"""

import types

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from acme import specs

from agents.agent import ActOutput, Agent
from agents.types import FIRST
from environments.base import BatchedEnvironment


class CounterEnvironment(BatchedEnvironment):
  """Environment i counts from 0 through an episode of `lengths[i]` steps; reward i at each step."""

  def __init__(self, lengths):
    self.num_envs = len(lengths)
    self._lengths = np.asarray(lengths)
    self._count = np.zeros(self.num_envs, np.int64)

  def reset(self):
    self._count[:] = 0
    return self._timestep()

  def step(self, action):
    self._count = np.where(self._count == self._lengths, 0, self._count + 1)
    return self._timestep()

  def _timestep(self):
    first, last = self._count == 0, self._count == self._lengths
    step_type = np.where(first, 0, np.where(last, 2, 1)).astype(np.uint8)
    reward = np.where(first, 0, np.arange(self.num_envs)).astype(np.float32)
    discount = np.where(last, 0, 1).astype(np.float32)
    return dm_env.TimeStep(step_type, reward, discount, self._count.astype(np.float32)[:, None])

  def observation_spec(self):
    return specs.Array((1,), np.float32)

  def action_spec(self):
    return specs.DiscreteArray(4, np.int32)


class CounterAgent(Agent):
  """Its core state is the number of rows it has consumed in this episode, which it also records."""

  def __init__(self, rows=5, period=4):
    self.unroll_rows = rows
    self.unroll_period = period

  def init(self, key):
    return None

  def initial_core_state(self, batch_size):
    return {'count': jnp.zeros((batch_size,), jnp.float32)}

  def exploration(self, num_environments):
    return np.arange(num_environments, dtype=np.float32)

  evaluation_exploration = -1.0

  def act(self, params, core_state, timestep, exploration, keys):
    count = jnp.where(timestep.step_type == FIRST, 0, core_state['count'])
    noise = jax.vmap(jax.random.uniform)(keys)
    return ActOutput(
      action=(count % 4).astype(jnp.int32),
      extras={
        'count': count,
        'exploration': exploration,
        'noise': noise,
        'params': params + 0 * count,
      },
      core_state={'count': count + 1},
    )

  def update(self, state, unrolls, probabilities):
    raise NotImplementedError


class RelabellingAgent(CounterAgent):
  """Its parameter is a number. Copies record it, and their keys, instead of what the originals have."""

  def __init__(self, extra=''):
    super().__init__()
    self._extra = extra

  def init(self, key):
    return types.SimpleNamespace(params=jnp.float32(0))

  def relabel(self, params, unrolls, keys):
    zeros = jnp.zeros_like(unrolls.extras['count'])
    noise = jax.vmap(jax.random.uniform)(keys)[:, None]
    extras = unrolls.extras | {'params': params + zeros, 'noise': noise + zeros}
    return extras | ({self._extra: zeros} if self._extra else {})
