"""Catch, vectorised over a batch.

The rules are those of bsuite's Catch (Osband et al. 2020, Behaviour Suite for Reinforcement
Learning). A ball falls one row per step in a uniformly random column. The paddle in the bottom row
starts in the middle column (`columns // 2`) and moves by at most one. When the ball reaches the
bottom row the episode terminates with reward 1 if the paddle is under it, else -1.
"""

from __future__ import annotations

import dm_env
import numpy as np
from acme import specs

from environments import errors
from environments.base import BatchedEnvironment

_MOVES = np.array([-1, 0, 1])  # Left, stay, right.


class Catch(BatchedEnvironment):
  """`N` games of Catch.

  Every episode lasts `rows - 1` steps, so the N balls are always in the same row and the N episodes end
  together.

  Observations are float32 `[rows, columns]`, 1 at the ball and at the paddle. Actions are 0 (left),
  1 (stay) and 2 (right).
  """

  def __init__(self, num_envs: int, seed: int, rows: int = 10, columns: int = 5):
    self.num_envs = num_envs
    self._rng = np.random.default_rng(seed)
    self._rows = rows
    self._columns = columns
    self._index = np.arange(num_envs)
    self._ball_row = rows - 1  # As after an episode end: the next step resets.
    self._ball = np.zeros(num_envs, np.int64)
    self._paddle = np.zeros(num_envs, np.int64)

  def reset(self) -> dm_env.TimeStep:
    """Starts N episodes. See the base class."""
    self._ball_row = 0
    self._ball = self._rng.integers(self._columns, size=self.num_envs)
    self._paddle = np.full(self.num_envs, self._columns // 2)
    return self._timestep(dm_env.StepType.FIRST, np.zeros(self.num_envs, np.float32))

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Moves the paddles and drops the balls.

    Args:
      action: int32 `[N]`, each 0, 1 or 2.

    Raises:
      IndexError: an action is 3 or more.
    """
    if self._ball_row == self._rows - 1:
      return self.reset()
    self._ball_row += 1
    self._paddle = (self._paddle + _MOVES[action]).clip(0, self._columns - 1)
    if self._ball_row < self._rows - 1:
      return self._timestep(dm_env.StepType.MID, np.zeros(self.num_envs, np.float32))
    reward = np.where(self._paddle == self._ball, np.float32(1), np.float32(-1))
    return self._timestep(dm_env.StepType.LAST, reward)

  def observation_spec(self) -> specs.Array:
    """Returns float32 `[rows, columns]` in [0, 1]."""
    return specs.BoundedArray((self._rows, self._columns), np.float32, 0.0, 1.0, 'observation')

  def action_spec(self) -> specs.DiscreteArray:
    """Returns the three actions."""
    return specs.DiscreteArray(len(_MOVES), np.int32, 'action')

  def _timestep(self, step_type: dm_env.StepType, reward: np.ndarray) -> dm_env.TimeStep:
    board = np.zeros((self.num_envs, self._rows, self._columns), np.float32)
    board[self._index, self._ball_row, self._ball] = 1.0
    board[self._index, -1, self._paddle] = 1.0
    discount = 0.0 if step_type is dm_env.StepType.LAST else 1.0
    return dm_env.TimeStep(
      step_type=np.full(self.num_envs, int(step_type), np.uint8),
      reward=reward,
      discount=np.full(self.num_envs, discount, np.float32),
      observation=board,
    )


def make(task: str, num_envs: int, seed: int, *, rows: int = 10, columns: int = 5) -> Catch:
  """Makes N games of Catch.

  Args:
    task: empty.
    num_envs: N.
    seed: the seed of the balls' columns.
    rows: height of the board; an episode lasts `rows - 1` steps.
    columns: width of the board.

  Raises:
    ValueError: the task is not empty, or the board is too small or too large to play on.
  """
  errors.reject_task('catch', task)
  errors.require_option(2 <= rows <= 1000, 'rows', rows, 'be from 2 to 1000')
  errors.require_option(1 <= columns <= 1000, 'columns', columns, 'be from 1 to 1000')
  return Catch(num_envs, seed, rows, columns)
