"""R2D2 learns a game that only memory can win, from unrolls that begin anywhere in it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin.environment import next_row
from agents.anakin.environments.catch import Catch
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.types import FIRST, LAST, Unroll

pytestmark = pytest.mark.slow

# 10 rows are an episode, and an unroll starts every 7: at each row of an episode in turn.
CONFIG = R2D2Config(
  burn_in=2,
  unroll_length=7,
  n_step=3,
  discount=0.99,
  mlp_sizes=(32,),
  lstm_size=32,
  head_size=32,
  target_update_period=100,
  learning_rate=2e-3,
  adam_eps=1e-4,
)
NUM_ENVS, BATCH_SIZE, CAPACITY, UPDATES = 32, 64, 100, 2000
PRIORITY_EXPONENT = 0.9
CATCH = Catch()


def hide_ball(timestep):
  """Blanks all but the row of the paddle after the first look at the board."""
  seen = (timestep.step_type == FIRST)[:, None, None]
  rows = CATCH.observation_spec.shape[0]
  paddle = (jnp.arange(rows) == rows - 1)[:, None]
  return timestep._replace(observation=jnp.where(seen | paddle, timestep.observation, 0.0))


@jax.jit
def train(key):
  """Returns rewards and step types `[updates, T, B]`, with a prioritized replay inside."""
  agent = R2D2(CONFIG, CATCH.observation_spec, CATCH.action_spec)
  exploration = jnp.asarray(agent.exploration(NUM_ENVS))
  init_key, env_key, key = jax.random.split(key, 3)
  learner = agent.init(init_key)

  def environment_step(carry, key):
    params, environment, timestep, core_state = carry
    env_key, act_key = jax.random.split(key)
    keys = jax.random.split(act_key, NUM_ENVS)
    answer = agent.act(params, core_state, hide_ball(timestep), exploration, keys)
    row = (hide_ball(timestep), answer.action, answer.extras)
    environment, timestep = jax.vmap(lambda *args: next_row(CATCH, *args))(
      environment, timestep.step_type, answer.action, jax.random.split(env_key, NUM_ENVS)
    )
    return (params, environment, timestep, answer.core_state), (row, core_state)

  def play(learner, stream, key, num_rows):
    keys = jax.random.split(key, num_rows)
    (_, *stream), rows = jax.lax.scan(environment_step, (learner.params, *stream), keys)
    return stream, rows

  def iteration(carry, key):
    learner, stream, window, replay, priorities = carry
    play_key, sample_key = jax.random.split(key)
    stream, new = play(learner, stream, play_key, agent.unroll_period)
    window = jax.tree.map(lambda a, b: jnp.concatenate([a, b])[-agent.unroll_rows :], window, new)
    batch = as_unrolls(window)
    slot = learner.learner_steps % CAPACITY
    replay = jax.tree.map(lambda ring, x: ring.at[slot].set(x), replay, batch)
    priorities = priorities.at[slot].set(agent.initial_priorities(batch))

    logits = PRIORITY_EXPONENT * jnp.log(priorities.ravel())
    chosen = jax.random.categorical(sample_key, logits, shape=(BATCH_SIZE,))
    where = (chosen // NUM_ENVS, chosen % NUM_ENVS)
    learner, updated, _ = agent.update(
      learner, jax.tree.map(lambda x: x[where], replay), jax.nn.softmax(logits)[chosen]
    )
    priorities = priorities.at[where].set(updated)
    played = new[0][0]
    return (learner, stream, window, replay, priorities), (played.reward, played.step_type)

  environment, timestep = jax.vmap(CATCH.reset)(jax.random.split(env_key, NUM_ENVS))
  stream = (environment, timestep, agent.initial_core_state(NUM_ENVS))
  key, play_key = jax.random.split(key)
  stream, window = play(learner, stream, play_key, agent.unroll_rows)
  empty = jnp.zeros((CAPACITY, NUM_ENVS))
  replay = jax.tree.map(lambda x: jnp.zeros((CAPACITY, *x.shape), x.dtype), as_unrolls(window))
  carry = (learner, stream, window, replay, empty)
  return jax.lax.scan(iteration, carry, jax.random.split(key, UPDATES))[1]


def as_unrolls(window):
  """Returns a window of rows `[L, B]` and the core states before them as unrolls `[B, L]`."""
  rows, core_states = window
  batch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
  versions = jnp.zeros(batch[1].shape, jnp.int32)
  before = jax.tree.map(lambda x: x[0], core_states)
  return Unroll(*batch, versions, before, jnp.arange(NUM_ENVS))


def test_catch_with_one_look_at_the_ball():
  # Without memory the first move, of three, decides where the paddle ends: it catches 3 balls of 5
  # at best, a mean return of 0.2.
  rewards, step_types = train(jax.random.key(0))
  late, greedy = np.s_[-UPDATES // 5 :], np.s_[NUM_ENVS * 2 // 3 :]
  ended = step_types[late, :, greedy] == LAST
  returns = rewards[late, :, greedy][ended]
  assert returns.size > 1000
  assert np.mean(returns) > 0.8, np.mean(returns)
