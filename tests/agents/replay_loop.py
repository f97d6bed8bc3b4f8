"""Trains an agent with prioritized replay on an environment in JAX, as one compiled function."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from agents.anakin.environment import next_row
from agents.types import LAST, Unroll


@functools.partial(jax.jit, static_argnums=(0, 1), static_argnames=('observe', 'sizes'))
def train(agent, environment, key, *, sizes, priority_exponent, observe=lambda timestep: timestep):
  """Returns rewards and step types `[iterations, T, B]` of the rows played between the updates.

  Args:
    agent: as nodes use it.
    environment: a `JaxEnvironment`.
    key: of everything.
    sizes: (environments B, unrolls in a batch, iterations in replay, iterations).
    priority_exponent: of the sampling.
    observe: maps timesteps `[B, ...]` to those that the agent sees.
  """
  num_envs, batch_size, capacity, iterations = sizes
  exploration = jnp.asarray(agent.exploration(num_envs))
  init_key, env_key, key = jax.random.split(key, 3)
  learner = agent.init(init_key)

  def environment_step(carry, key):
    params, state, timestep, core_state = carry
    env_key, act_key = jax.random.split(key)
    seen = observe(timestep)
    keys = jax.random.split(act_key, num_envs)
    answer = agent.act(params, core_state, seen, exploration, keys)
    state, timestep = jax.vmap(lambda *args: next_row(environment, *args))(
      state, timestep.step_type, answer.action, jax.random.split(env_key, num_envs)
    )
    row = (seen, answer.action, answer.extras)
    return (params, state, timestep, answer.core_state), (row, core_state)

  def play(learner, stream, key, num_rows):
    keys = jax.random.split(key, num_rows)
    (_, *stream), rows = jax.lax.scan(environment_step, (learner.params, *stream), keys)
    return stream, rows

  def as_unrolls(window):
    """Returns a window of rows `[L, B]` and the core states before them as unrolls `[B, L]`."""
    rows, core_states = window
    batch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    versions = jnp.zeros(batch[1].shape, jnp.int32)
    before = jax.tree.map(lambda x: x[0], core_states)
    return Unroll(*batch, versions, before, jnp.arange(num_envs))

  def iteration(carry, key):
    learner, stream, window, replay, priorities = carry
    play_key, sample_key = jax.random.split(key)
    stream, new = play(learner, stream, play_key, agent.unroll_period)
    window = jax.tree.map(lambda a, b: jnp.concatenate([a, b])[-agent.unroll_rows :], window, new)
    batch = as_unrolls(window)
    slot = learner.learner_steps % capacity
    replay = jax.tree.map(lambda ring, x: ring.at[slot].set(x), replay, batch)
    priorities = priorities.at[slot].set(agent.initial_priorities(batch))

    logits = priority_exponent * jnp.log(priorities.ravel())
    chosen = jax.random.categorical(sample_key, logits, shape=(batch_size,))
    where = (chosen // num_envs, chosen % num_envs)
    learner, updated, _ = agent.update(
      learner, jax.tree.map(lambda x: x[where], replay), jax.nn.softmax(logits)[chosen]
    )
    priorities = priorities.at[where].set(updated)
    played = new[0][0]
    return (learner, stream, window, replay, priorities), (played.reward, played.step_type)

  state, timestep = jax.vmap(environment.reset)(jax.random.split(env_key, num_envs))
  stream = (state, timestep, agent.initial_core_state(num_envs))
  key, play_key = jax.random.split(key)
  stream, window = play(learner, stream, play_key, agent.unroll_rows)
  empty = jnp.zeros((capacity, num_envs))
  replay = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), as_unrolls(window))
  carry = (learner, stream, window, replay, empty)
  return jax.lax.scan(iteration, carry, jax.random.split(key, iterations))[1]


def late_returns(played, share=0.2):
  """Returns the rewards at the ends of episodes in the last iterations, of what `train` returned."""
  rewards, step_types = jax.device_get(played)
  late = np.s_[-int(share * len(rewards)) :]
  return rewards[late][step_types[late] == LAST]
