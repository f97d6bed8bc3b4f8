"""Where an agent of the lifetimes moves: a table of cells, with objects in some of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class World(NamedTuple):
  """Cells and moves. An action may leave the agent where it is."""

  moves: np.ndarray  # int32 `[cells, actions]`, the cell after an action.
  start: int  # The cell in which an inner episode begins.
  objects: np.ndarray  # int32 `[objects]`, the cell of each.


def room(size: int, num_objects: int) -> World:
  """Returns a square room, entered in the middle, with objects in its corners.

  Actions are 0 (up), 1 (down), 2 (left) and 3 (right); walls stop the agent.

  Args:
    size: cells along each wall; cell `row * size + column`.
    num_objects: at most 4, in the corners top right, bottom left, bottom right, top left.
  """
  row, column = np.divmod(np.arange(size * size), size)
  steps = ((-1, 0), (1, 0), (0, -1), (0, 1))
  moves = [
    np.clip(row + down, 0, size - 1) * size + np.clip(column + right, 0, size - 1)
    for down, right in steps
  ]
  last = size - 1
  corners = np.asarray([last, size * last, size * size - 1, 0], np.int32)
  start = (size // 2) * size + size // 2
  return World(np.stack(moves, 1).astype(np.int32), start, corners[:num_objects])


def choice(num_objects: int) -> World:
  """Returns a world without distances: action i moves to object i, in cell i + 1, from anywhere."""
  objects = np.arange(1, num_objects + 1, dtype=np.int32)
  return World(np.tile(objects, (num_objects + 1, 1)), 0, objects)
