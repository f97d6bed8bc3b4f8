"""Plays one episode with each of many policies, in environments written in JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agents.agent import Agent
from agents.anakin.environment import JaxEnvironment, as_arrays
from agents.evolution.agent import Evolution
from agents.types import LAST, Array, Nest, Timestep


class Episode(NamedTuple):
  """One episode in progress, or over."""

  environment: Nest  # The state.
  core_state: Nest  # `[1, ...]` per leaf.
  seen: Nest  # Statistics of its observations.
  action: Array
  key: Array
  over: Array  # bool.
  episode_return: Array  # float32, raw.
  length: Array  # int32, steps.


def act(
  agent: Agent, params: Nest, core_state: Nest, timestep: Timestep, key: Array
) -> tuple[Array, Nest]:
  """Returns the action for one timestep, and the next core state, `[1, ...]` per leaf."""
  batch = jax.tree.map(lambda x: x[None], timestep)
  output = agent.act(params, core_state, batch, jnp.zeros(1, jnp.float32), key[None])
  return output.action[0], output.core_state


def play(
  agent: Evolution, environment: JaxEnvironment, params: Nest, keys: Array, max_steps: int
) -> tuple[Array, Array, Nest]:
  """Plays an episode with each policy, until all are over.

  Args:
    agent: acts.
    environment: one environment.
    params: `[N, ...]` per leaf, of N policies.
    keys: typed PRNG keys `[N]`; episodes with the same key differ only through their policies.
    max_steps: after which an episode counts with its return so far.

  Returns:
    Raw returns, float32 `[N]`, lengths in steps, int32 `[N]`, and statistics of the observations.
  """

  def begin(params: Nest, key: Array) -> Episode:
    key, reset_key, act_key = jax.random.split(key, 3)
    state, timestep = environment.reset(reset_key)
    action, core_state = act(agent, params, agent.initial_core_state(1), timestep, act_key)
    seen = agent.having_seen(agent.nothing_seen(), timestep.observation)
    over, none = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    parts = as_arrays(state), as_arrays(core_state), as_arrays(seen)
    return Episode(*parts, action, key, over, jnp.float32(0.0), none)

  def advance(params: Nest, episode: Episode) -> Episode:
    key, step_key, act_key = jax.random.split(episode.key, 3)
    dtype: Any = jax.dtypes.canonicalize_dtype(environment.action_spec.dtype)
    state, timestep = environment.step(episode.environment, episode.action.astype(dtype), step_key)
    action, core_state = act(agent, params, episode.core_state, timestep, act_key)
    over = timestep.step_type == LAST
    seen = agent.having_seen(episode.seen, timestep.observation)
    # As elsewhere, the observation after the last action does not count.
    seen = jax.tree.map(lambda old, new: jnp.where(over, old, new), episode.seen, seen)
    after = Episode(
      as_arrays(state),
      as_arrays(core_state),
      as_arrays(seen),
      action,
      key,
      over,
      episode.episode_return + timestep.reward,
      episode.length + 1,
    )
    return jax.tree.map(lambda old, new: jnp.where(episode.over, old, new), episode, after)

  def goes_on(episodes: Episode) -> Array:
    return ~jnp.all(episodes.over) & (jnp.max(episodes.length) < max_steps)

  episodes = jax.vmap(begin)(params, keys)
  episodes = jax.lax.while_loop(goes_on, lambda now: jax.vmap(advance)(params, now), episodes)
  return episodes.episode_return, episodes.length, episodes.seen
