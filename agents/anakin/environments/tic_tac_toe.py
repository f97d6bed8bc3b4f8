"""A perfect player of tic-tac-toe: a table of the best moves in every position, by minimax.

A position is a tuple of 9 cells, row by row, as the player to move sees it: 0 is free, 1 its own, 2 the
other's. Its index in the table is the number with these digits to base 3, the first cell last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from agents.types import Array

Position = tuple[int, ...]

CELLS = 9
_POWERS = 3 ** np.arange(CELLS)
_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def after(position: Position, cell: int) -> Position:
  """Returns the position after a move into a free cell, as the other player sees it."""
  moved = (*position[:cell], 1, *position[cell + 1 :])
  return tuple((0, 2, 1)[x] for x in moved)


@functools.cache
def value(position: Position) -> int:
  """Returns what the player to move reaches against perfect play: 1, 0 or -1."""
  if is_lost(position):
    return -1
  return max((-value(after(position, cell)) for cell in free(position)), default=0)


def is_lost(position: Position) -> bool:
  """Returns whether the other player has three in a line."""
  return any(all(position[cell] == 2 for cell in line) for line in _LINES)


def free(position: Position) -> list[int]:
  """Returns the free cells of a position."""
  return [cell for cell in range(CELLS) if not position[cell]]


@functools.cache
def best_moves() -> np.ndarray:
  """Returns the moves that reach the value of each position, bool `[3^9, 9]`.

  Positions that no game reaches, or in which it has ended, have none.
  """
  table = np.zeros((3**CELLS, CELLS), bool)
  positions = {(0,) * CELLS}
  while positions:
    later = set()
    for position in positions:
      outcomes = {cell: -value(after(position, cell)) for cell in free(position)}
      best = [cell for cell, outcome in outcomes.items() if outcome == value(position)]
      table[np.dot(position, _POWERS), best] = True
      later |= {after(position, cell) for cell in free(position)}
    positions = {position for position in later if not is_lost(position)}
  return table


def perfect_player() -> Callable[[Array, Array, Array], Array]:
  """Returns a player, as `agents.anakin.environments.pgx` needs it, that makes any of the best moves."""
  table = best_moves()

  def play(observation: Array, legal: Array, key: Array) -> Array:
    del legal
    own, other = jnp.moveaxis(observation.reshape(CELLS, 2), 1, 0)
    best = jnp.asarray(table)[jnp.dot(own + 2 * other, _POWERS)]
    return jax.random.categorical(key, jnp.where(best, 0.0, -jnp.inf))

  return play
