"""Catch as pure JAX functions.

The rules are those of bsuite's Catch (Osband et al. 2020, Behaviour Suite for Reinforcement
Learning). A ball falls one row per step in a uniformly random column. The paddle in the bottom row
starts in the middle column and moves by at most one. When the ball reaches the bottom row the episode
terminates with reward 1 if the paddle is under it, else -1.
"""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.anakin.environment import begin_episode, transition
from agents.types import Array, Timestep


class CatchState(NamedTuple):
  """One game; every leaf is int32 `[]`."""

  ball_column: Array
  ball_row: Array
  paddle: Array


class Catch:
  """Observations are float32 `[rows, columns]`, 1 at the ball and at the paddle; 3 actions.

  Actions are 0 (left), 1 (stay) and 2 (right).
  """

  def __init__(self, rows: int = 10, columns: int = 5):
    self._rows = rows
    self._columns = columns
    self.observation_spec = dm_env.specs.BoundedArray(
      (rows, columns), np.float32, 0.0, 1.0, 'observation'
    )
    self.action_spec = dm_env.specs.DiscreteArray(3, np.int32, 'action')

  def reset(self, key: Array) -> tuple[CatchState, Timestep]:
    """Drops a ball in a random column. See `JaxEnvironment`."""
    column = jax.random.randint(key, (), 0, self._columns)
    state = CatchState(column, jnp.int32(0), jnp.int32(self._columns // 2))
    return state, begin_episode(self._observe(state))

  def step(self, state: CatchState, action: Array, key: Array) -> tuple[CatchState, Timestep]:
    """Moves the paddle, then the ball. See `JaxEnvironment`."""
    del key
    state = CatchState(
      state.ball_column,
      state.ball_row + 1,
      jnp.clip(state.paddle + action - 1, 0, self._columns - 1),
    )
    ended = state.ball_row == self._rows - 1
    caught = jnp.where(state.ball_column == state.paddle, 1.0, -1.0)
    return state, transition(self._observe(state), jnp.where(ended, caught, 0.0), ended)

  def _observe(self, state: CatchState) -> Array:
    row, column = jnp.arange(self._rows)[:, None], jnp.arange(self._columns)
    ball = (row == state.ball_row) & (column == state.ball_column)
    paddle = (row == self._rows - 1) & (column == state.paddle)
    return (ball | paddle).astype(jnp.float32)


def make(task: str, *, rows: int = 10, columns: int = 5) -> Catch:
  """Makes a game of Catch.

  Args:
    task: empty.
    rows: height of the board; an episode lasts `rows - 1` steps.
    columns: width of the board.

  Raises:
    ValueError: the task is not empty, or the board is too small or too large to play on.
  """
  if task:
    raise ValueError(f'--env=catch:{task}: catch has no tasks; write --env=catch.')
  if not (2 <= rows <= 1000 and 1 <= columns <= 1000):
    raise ValueError(
      f'--env_options=rows={rows},columns={columns} is not a board; set 2 to 1000 rows and 1 to 1000 '
      'columns.'
    )
  return Catch(rows, columns)
