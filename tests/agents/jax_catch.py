"""Catch with bsuite's rules as pure JAX functions that follow the row contract."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.types import FIRST, LAST, MID, Timestep

ROWS, COLUMNS = 10, 5
OBSERVATION_SPEC = dm_env.specs.Array((ROWS, COLUMNS), np.float32)
ACTION_SPEC = dm_env.specs.DiscreteArray(3, dtype=np.int32)


class CatchState(NamedTuple):
  """One game; every leaf is a scalar."""

  ball_x: jax.Array
  ball_y: jax.Array
  paddle_x: jax.Array
  ended: jax.Array


def reset(key):
  """Returns (state, FIRST timestep): a ball in a random column of row 0, the paddle in the middle."""
  ball_x = jax.random.randint(key, (), 0, COLUMNS)
  state = CatchState(ball_x, jnp.int32(0), jnp.int32(COLUMNS // 2), jnp.bool_(False))
  return state, _timestep(state, FIRST, jnp.float32(0), jnp.float32(1))


def step(state, action, key):
  """Moves the paddle, then the ball, or starts the next game where the last one had ended."""
  paddle_x = jnp.clip(state.paddle_x + action - 1, 0, COLUMNS - 1)
  ball_y = state.ball_y + 1
  ended = ball_y == ROWS - 1
  reward = jnp.where(ended, jnp.where(state.ball_x == paddle_x, 1.0, -1.0), 0.0)
  moved = CatchState(state.ball_x, ball_y, paddle_x, ended)
  played = (moved, _timestep(moved, jnp.where(ended, LAST, MID), reward, 1.0 - ended))
  return jax.tree.map(lambda a, b: jnp.where(state.ended, a, b), reset(key), played)


def _timestep(state, step_type, reward, discount):
  board = jnp.zeros((ROWS, COLUMNS), jnp.float32)
  board = board.at[state.ball_y, state.ball_x].set(1.0).at[ROWS - 1, state.paddle_x].set(1.0)
  return Timestep(
    jnp.asarray(step_type, jnp.uint8),
    jnp.asarray(reward, jnp.float32),
    jnp.asarray(discount, jnp.float32),
    board,
  )
