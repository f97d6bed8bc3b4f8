"""SAC learns to leave a small reward for a large one, from random rows, as its targets bootstrap."""

from __future__ import annotations

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.sac.agent import SAC
from agents.sac.config import SACConfig
from agents.types import FIRST, LAST, MID, Timestep, Unroll

pytestmark = pytest.mark.trains

OBSERVATIONS = dm_env.specs.Array((1,), np.float32)
ACTIONS = dm_env.specs.BoundedArray((1,), np.float32, 3.0, 7.0)  # 5 stays in place.
CONFIG = SACConfig(head_sizes=(32, 32), learning_rate=1e-2, discount=0.9, tau=0.05)
UPDATES, BATCH_SIZE = 2000, 128


def moved(place, action):
  """Returns the next place on a line, and its reward: 1 at 1, and 0.4 at -1, where the walk begins."""
  place = jnp.clip(place + 0.15 * (action - 5.0), -1.5, 1.5)
  return place, jnp.exp(-jnp.square((place - 1) / 0.3)) + 0.4 * jnp.exp(
    -jnp.square((place + 1) / 0.3)
  )


def batch(key):
  """Returns unrolls of two rows, of uniformly random places and actions.

  A quarter end in a truncation. A quarter begin with a LAST row, after which another episode follows.
  """
  keys = jax.random.split(key, 3)
  place = jax.random.uniform(keys[0], (BATCH_SIZE, 1), minval=-1.5, maxval=1.5)
  action = jax.random.uniform(keys[1], (BATCH_SIZE, 1), minval=3.0, maxval=7.0)
  following, reward = moved(place, action)
  kind = jnp.arange(BATCH_SIZE) % 4
  step_type = jnp.stack([jnp.where(kind == 0, LAST, MID), jnp.where(kind == 1, LAST, MID)], -1)
  step_type = step_type.at[:, 1].set(jnp.where(kind == 0, FIRST, step_type[:, 1]))
  # What the LAST row leads to says nothing.
  following = jnp.where(kind[:, None] == 0, jax.random.uniform(keys[2], following.shape), following)
  rewards = jnp.stack([jnp.zeros(BATCH_SIZE), jnp.where(kind == 0, 0.0, reward[:, 0])], -1)
  timestep = Timestep(
    step_type, rewards, jnp.ones_like(rewards), jnp.stack([place, following], axis=1)
  )
  version = jnp.zeros(step_type.shape, jnp.int32)
  both = jnp.stack([action, jnp.full_like(action, 5.0)], axis=1)
  return Unroll(timestep, both, {}, version, {}, jnp.arange(BATCH_SIZE))


class Observed(SAC):
  """Adds the entropy of its policy, by quadrature, to what it acts with."""

  def policy(self, params, output, *others):
    action, extras = super().policy(params, output, *others)
    return action, extras | {'entropy': self.distribution.entropy(output)}


class Myopic(Observed):
  """Its targets do not bootstrap."""

  def targets(self, params, target_critics, unrolls, keys):
    return unrolls.timestep.reward[:, 1:]


def trained(cls):
  """Returns the mean reward of the last 10 of 30 steps from -1, and the mean entropy in all places."""
  agent = cls(CONFIG, OBSERVATIONS, ACTIONS)

  @jax.jit
  def run(key):
    def update(state, key):
      return agent.update(state, batch(key)).state, None

    keys = jax.random.split(jax.random.fold_in(key, 1), UPDATES)
    params = jax.lax.scan(update, agent.init(key), keys)[0].params

    def act(places):
      zeros = jnp.zeros(len(places))
      timestep = Timestep(jnp.full(len(places), MID), zeros, zeros + 1, places)
      return agent.act(params, {}, timestep, zeros, jax.random.split(key, len(places)))

    _, rewards = jax.lax.scan(
      lambda place, _: moved(place, act(place).action), jnp.full((1, 1), -1.0), length=30
    )
    entropy = act(jnp.linspace(-1.5, 1.5, 101)[:, None]).extras['entropy']
    return rewards[-10:].mean(), entropy.mean()

  return run(jax.random.key(0))


def test_it_leaves_the_small_reward_and_holds_its_entropy_at_the_target():
  reward, entropy = trained(Observed)
  assert reward > 0.9
  assert abs(entropy + 1.0) < 0.2


def test_without_bootstrapping_it_stays_at_the_small_reward():
  assert trained(Myopic)[0] < 0.5
