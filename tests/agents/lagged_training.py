"""Training with parameters that act some updates later than they were learned."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.anakin import streams


def train(
  agent, environment, key, *, num_envs, frames, lag=0, prepare=lambda learner, unrolls: unrolls
):
  """Trains, each update on one unroll of every environment.

  Args:
    agent: the agent.
    environment: one environment in JAX.
    key: a typed PRNG key.
    num_envs: environments.
    frames: rows of the run, over all environments.
    lag: updates between the parameters that act and those that learn.
    prepare: takes the learner state and unrolls, and returns the unrolls to learn from.

  Returns:
    Rewards and step types `[updates, T, B]` in the order of time.
  """
  init_key, streams_key = jax.random.split(key)
  learner = agent.init(init_key)
  ring = jax.tree.map(lambda x: jnp.broadcast_to(x, (lag + 1, *x.shape)), learner.params)

  def iteration(carry, _):
    learner, ring, playing = carry
    version = jnp.maximum(learner.learner_steps - lag, 0)
    params = jax.tree.map(lambda x: x[version % (lag + 1)], ring)
    playing, unrolls, _ = streams.unroll(agent, environment, params, version, playing)
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1)[1:], unrolls.timestep)
    learner = agent.update(learner, prepare(learner, unrolls)).state
    slot = learner.learner_steps % (lag + 1)
    ring = jax.tree.map(lambda x, p: x.at[slot].set(p), ring, learner.params)
    return (learner, ring, playing), (rows.reward, rows.step_type)

  exploration = jnp.asarray(agent.exploration(num_envs))
  playing = streams.begin(
    agent, environment, learner.params, jnp.int32(0), exploration, streams_key
  )
  num_updates = frames // (num_envs * agent.unroll_period)
  return jax.lax.scan(iteration, (learner, ring, playing), length=num_updates)[1]
