"""PQN learns not to end an episode, which takes returns that know where it ends."""

from __future__ import annotations

import functools

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin.environment import begin_episode, transition
from agents.pqn.agent import PQN
from agents.pqn.config import PQNConfig
from agents.types import LAST, MID
from tests.agents import lagged_training

pytestmark = pytest.mark.trains

LENGTH = 8


class Leave:
  """Action 1 ends the episode with a reward of 1; action 0 earns 0.4 and goes on, for 8 steps.

  Going on until the last step is best: 3.8. An observation is the number of steps, also at the end. If
  the value of that state counts after the end, leaving is better by 0.6 in every step.
  """

  observation_spec = dm_env.specs.Array((LENGTH + 1,), np.float32)
  action_spec = dm_env.specs.DiscreteArray(2, np.int32)

  def reset(self, key):
    return jnp.int32(0), begin_episode(self._observe(jnp.int32(0)))

  def step(self, state, action, key):
    state = state + 1
    leaves = action == 1
    reward = jnp.where(leaves, 1.0, 0.4)
    return state, transition(self._observe(state), reward, leaves | (state == LENGTH))

  def _observe(self, state):
    return jax.nn.one_hot(state, LENGTH + 1)


class Endless(PQN):
  """It takes terminations for truncations."""

  def targets(self, q_values, action, timestep, valid):
    endless = timestep._replace(discount=jnp.ones_like(timestep.discount))
    return super().targets(q_values, action, endless, valid)


CONFIG = PQNConfig(
  unroll_length=6,
  mlp_sizes=(32,),
  num_minibatches=4,
  learning_rate=1e-3,
  epsilon_base=0.5,
  epsilon_alpha=3.0,
)
LEAVE = Leave()


@functools.partial(jax.jit, static_argnums=1)
@functools.partial(jax.vmap, in_axes=(0, None))
def train(key, cls):
  agent = cls(CONFIG, LEAVE.observation_spec, LEAVE.action_spec)
  return lagged_training.train(agent, LEAVE, key, num_envs=16, frames=30_000, lag=1)


def late_return(cls):
  """Returns the mean return, with exploration, of the last quarter of the updates; three seeds."""
  rewards, step_types = jax.device_get(train(jax.random.split(jax.random.key(0), 3), cls))
  later = slice(rewards.shape[1] * 3 // 4, None)
  assert np.any(step_types == MID)
  return [
    r[later].sum() / np.sum(s[later] == LAST) for r, s in zip(rewards, step_types, strict=True)
  ]


def test_it_goes_on_unless_its_returns_go_on_after_the_end():
  right, endless = map(late_return, (PQN, Endless))
  assert min(right) > 2.1, right
  assert max(endless) < 1.8, endless
