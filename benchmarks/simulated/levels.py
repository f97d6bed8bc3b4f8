"""Catch in JAX whose every episode begins with a new level, as games with generated worlds have."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.anakin.environment import begin_episode
from agents.anakin.environments.catch import Catch, CatchState
from agents.types import Array, Timestep


class Levels(Catch):
  """Lets heights spread over a plain step by step; where they end decides the column of the ball."""

  def __init__(self, spread_steps: int):
    super().__init__(rows=100)
    self._spread_steps = spread_steps

  def reset(self, key: Array) -> tuple[CatchState, Timestep]:
    """Generates a level. See `JaxEnvironment`."""

    def spread(heights: Array, _: None) -> tuple[Array, None]:
      neighbours = sum(jnp.roll(heights, shift, axis) for axis in (0, 1) for shift in (1, -1))
      return jnp.tanh(heights + 0.3 * neighbours), None

    heights = jax.random.normal(key, (self._columns, self._columns))
    heights, _ = jax.lax.scan(spread, heights, length=self._spread_steps)
    state = CatchState(jnp.argmax(heights[0]), jnp.int32(0), jnp.int32(self._columns // 2))
    return state, begin_episode(self._observe(state))


def make(task: str, *, spread_steps: int = 600) -> Levels:
  """Makes one; an episode has 99 steps."""
  del task
  return Levels(spread_steps)
