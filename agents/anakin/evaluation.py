"""Evaluation in JAX environments: whole episodes, the same number in each environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agents.agent import Agent
from agents.anakin import streams as playing
from agents.anakin.environment import JaxEnvironment
from agents.anakin.streams import Streams
from agents.types import LAST, Array, Nest


class EvaluationState(NamedTuple):
  """An evaluation in progress."""

  streams: Streams
  returns: Array  # float32 `[B, episodes_each]`, raw, of the finished episodes.
  finished: Array  # int32 `[B]`, the number of finished episodes.
  was_cut: Array  # bool `[B]`, whether an episode counted before its end.


class Evaluation:
  """Plays episodes with the agent's `evaluation_exploration`.

  Every environment contributes the same number of episodes, so short episodes are not over-represented.
  """

  def __init__(
    self,
    agent: Agent,
    environment: JaxEnvironment,
    num_envs: int,
    episodes_each: int,
    rows_per_call: int = 200,
    max_episode_steps: int = 0,
  ):
    """Initialises an evaluation.

    Args:
      agent: the acting agent.
      environment: one environment.
      num_envs: number of copies to play.
      episodes_each: episodes that count, per environment.
      rows_per_call: rows per call of `play`.
      max_episode_steps: after which an episode counts with its return so far. The environment cannot
        begin another one then, so its later episodes do not count. 0 for no limit.
    """
    self._agent = agent.for_loops()
    self._environment = environment
    self._num_envs = num_envs
    self._episodes_each = episodes_each
    self._rows_per_call = rows_per_call
    self._max_steps = max_episode_steps
    self._begin: Any = jax.jit(self._make_state)
    self._play: Any = jax.jit(self._rows, donate_argnums=1)

  def compile(self, params: Nest, key: Array) -> None:
    """Compiles ahead of the first evaluation; takes the shapes and dtypes of what `begin` takes."""
    state = jax.eval_shape(self._make_state, params, key)
    self._begin = self._begin.lower(params, key).compile()
    self._play = self._play.lower(params, state).compile()

  def begin(self, params: Nest, key: Array) -> EvaluationState:
    """Starts an episode in every environment; `key` is a typed PRNG key."""
    return self._begin(params, key)

  def play(self, params: Nest, state: EvaluationState) -> EvaluationState:
    """Plays `rows_per_call` more rows; donates the buffers of `state`."""
    return self._play(params, state)

  def rounds(self, state: EvaluationState) -> int:
    """Returns how many episodes every environment has finished, at most `episodes_each`."""
    return min(int(jax.device_get(state.finished).min()), self._episodes_each)

  def was_cut(self, state: EvaluationState) -> bool:
    """Returns whether an episode counted before its end, after which no further round is played."""
    return bool(jax.device_get(state.was_cut).any())

  def _make_state(self, params: Nest, key: Array) -> EvaluationState:
    exploration = jnp.full(self._num_envs, self._agent.evaluation_exploration, jnp.float32)
    return EvaluationState(
      playing.begin(self._agent, self._environment, params, jnp.int32(0), exploration, key),
      jnp.zeros((self._num_envs, self._episodes_each), jnp.float32),
      jnp.zeros(self._num_envs, jnp.int32),
      jnp.zeros(self._num_envs, bool),
    )

  def _rows(self, params: Nest, state: EvaluationState) -> EvaluationState:
    def row(state: EvaluationState, _: None) -> tuple[EvaluationState, None]:
      streams = playing.advance(self._agent, self._environment, params, jnp.int32(0), state.streams)
      last = streams.row.timestep.step_type == LAST
      cut = jnp.zeros_like(last)
      if self._max_steps:
        cut = (streams.episode_length >= self._max_steps) & ~last & ~state.was_cut
      ended = (last & ~state.was_cut) | cut
      counted = ended[:, None] & (jnp.arange(self._episodes_each) == state.finished[:, None])
      returns = jnp.where(counted, streams.episode_return[:, None], state.returns)
      return EvaluationState(streams, returns, state.finished + ended, state.was_cut | cut), None

    return jax.lax.scan(row, state, length=self._rows_per_call)[0]
