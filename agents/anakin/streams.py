"""Acting in a batch of JAX environments: rows, and the unrolls made of them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from agents.agent import Agent
from agents.anakin.environment import JaxEnvironment, as_arrays, next_rows
from agents.types import FIRST, LAST, Array, Nest, Timestep, Unroll


class Row(NamedTuple):
  """A row of `agents.types`, with the agent's outputs. Leading axes as in `Timestep`."""

  timestep: Timestep
  action: Array
  extras: dict[str, Array]
  policy_version: Array


class Past(NamedTuple):
  """Rows, and the core state before each of them. Leading axes are `[B, T]`."""

  row: Row
  before: Nest


class Streams(NamedTuple):
  """`B` independent environments between two rows. Every leaf is `[B, ...]`.

  Each environment is a stream of rows with its own random numbers, so a run does not depend on how the
  batch is sharded. An environment group is something else: the environments of one actor's request in
  central inference.
  """

  environment: Nest  # The environments' states.
  key: Array  # uint32 `[B, ...]`, data of the PRNG keys for the next row.
  exploration: Array  # float32.
  environment_id: Array  # int32.
  before: Nest  # The core state before `row` was consumed.
  after: Nest  # The core state after `row` was consumed.
  row: Row  # The latest row.
  episode_return: Array  # float32, raw, of the episode so far, `row` included.
  episode_length: Array  # int32, steps of the episode so far.
  past: Past  # The rows before `row` that the next unroll begins with; zeros where there are none.


class Episodes(NamedTuple):
  """Statistics of some rows, for each environment. Every leaf is `[B]` and additive."""

  actor_steps: Array  # int32, actions that the environment executed.
  episodes: Array  # int32, episodes that ended.
  return_sum: Array  # float32, raw, sum of the returns of those episodes.
  length_sum: Array  # int32, sum of their lengths.


def begin(
  agent: Agent,
  environment: JaxEnvironment,
  params: Nest,
  policy_version: Array,
  exploration: Array,
  key: Array,
) -> Streams:
  """Starts an episode in every environment and acts on its FIRST row.

  Args:
    agent: the acting agent.
    environment: one environment; `exploration` has one element for each copy to play.
    params: the agent's parameters.
    policy_version: int32 `[]`, the number of learner steps that produced `params`.
    exploration: float32 `[B]`.
    key: a typed PRNG key.
  """
  num_envs = exploration.shape[0]
  keys = jax.random.split(key, num_envs)
  keys, environment_keys, agent_keys = _split(keys)
  state, timestep = jax.vmap(lambda key: environment.reset(key))(environment_keys)
  before = agent.initial_core_state(num_envs)
  row, after = _answer(agent, params, policy_version, before, timestep, exploration, agent_keys)
  num_past = agent.unroll_rows - agent.unroll_period - 1
  past = jax.tree.map(
    lambda x: jnp.zeros((num_envs, num_past, *x.shape[1:]), x.dtype), Past(row, before)
  )
  return Streams(
    environment=as_arrays(state),
    key=jax.random.key_data(keys),
    exploration=exploration,
    environment_id=jnp.arange(num_envs, dtype=jnp.int32),
    before=before,
    after=after,
    row=row,
    episode_return=jnp.zeros(num_envs, jnp.float32),
    episode_length=jnp.zeros(num_envs, jnp.int32),
    past=past,
  )


def advance(
  agent: Agent, environment: JaxEnvironment, params: Nest, policy_version: Array, streams: Streams
) -> Streams:
  """Executes the actions of the latest rows and acts on the next; arguments as in `begin`."""
  keys, environment_keys, agent_keys = _split(jax.random.wrap_key_data(streams.key))
  state, timestep = next_rows(
    environment,
    streams.environment,
    streams.row.timestep.step_type,
    streams.row.action,
    environment_keys,
  )
  row, after = _answer(
    agent, params, policy_version, streams.after, timestep, streams.exploration, agent_keys
  )
  first = timestep.step_type == FIRST
  return streams._replace(
    environment=as_arrays(state),
    key=jax.random.key_data(keys),
    before=streams.after,
    after=after,
    row=row,
    episode_return=jnp.where(first, 0.0, streams.episode_return + timestep.reward),
    episode_length=jnp.where(first, 0, streams.episode_length + 1),
  )


def unroll(
  agent: Agent, environment: JaxEnvironment, params: Nest, policy_version: Array, streams: Streams
) -> tuple[Streams, Unroll, Episodes]:
  """Plays to the end of the next unroll in every environment: `unroll_period` new rows.

  Args:
    agent: the acting agent.
    environment: one environment.
    params: the agent's parameters.
    policy_version: int32 `[]`, the number of learner steps that produced `params`.
    streams: their past and their latest row become the first rows of the unroll.

  Returns:
    The streams, whose latest row is the last of the unroll; the unrolls `[B, L, ...]`; and the
    statistics of the new rows.
  """

  def step(now: Streams, _: None) -> tuple[Streams, tuple[Past, Array, Array]]:
    later = advance(agent, environment, params, policy_version, now)
    return later, (Past(later.row, later.before), later.episode_return, later.episode_length)

  later, (new, returns, lengths) = jax.lax.scan(step, streams, length=agent.unroll_period)
  step_type = new.row.timestep.step_type
  last = step_type == LAST
  episodes = Episodes(
    actor_steps=jnp.sum(step_type != FIRST, axis=0, dtype=jnp.int32),
    episodes=jnp.sum(last, axis=0, dtype=jnp.int32),
    return_sum=jnp.sum(jnp.where(last, returns, 0.0), axis=0),
    length_sum=jnp.sum(jnp.where(last, lengths, 0), axis=0, dtype=jnp.int32),
  )
  batch = jax.tree.map(
    lambda past, now, new: jnp.concatenate([past, now[:, None], jnp.swapaxes(new, 0, 1)], axis=1),
    streams.past,
    Past(streams.row, streams.before),
    new,
  )
  timestep, action, extras, versions = batch.row
  core_state = jax.tree.map(lambda x: x[:, 0], batch.before)
  unrolls = Unroll(timestep, action, extras, versions, core_state, streams.environment_id)
  past = jax.tree.map(lambda x: x[:, agent.unroll_period : -1], batch)
  return later._replace(past=past), unrolls, episodes


def num_incomplete(agent: Agent) -> int:
  """Returns how many of the first unrolls of a stream lack rows, because nothing lies before them."""
  return -(-(agent.unroll_rows - 1) // agent.unroll_period) - 1


def _answer(
  agent: Agent,
  params: Nest,
  policy_version: Array,
  core_state: Nest,
  timestep: Timestep,
  exploration: Array,
  keys: Array,
) -> tuple[Row, Nest]:
  """Acts on a batch of timesteps; returns the complete row and the core state after it."""
  output = agent.act(params, core_state, timestep, exploration, keys)
  version = jnp.full(exploration.shape, policy_version, jnp.int32)
  return Row(timestep, output.action, output.extras, version), output.core_state


def _split(keys: Array) -> tuple[Array, Array, Array]:
  """Splits each of `[B]` keys in three: for later rows, and for environment and agent in the next row.

  `fold_in` with a small number could collide with an environment's own splits of its key.
  """
  split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
  return split[:, 0], split[:, 1], split[:, 2]
