"""Lives as episodes, step by step, on a game whose lives are scripted."""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from environments.gym import GymnasiumBatch
from environments.lives import LivesAsEpisodes
from nodes.evaluation.episodes import Episode, play_episodes

FIRST, MID, LAST = 0, 1, 2
NOOP, MOVE = 0, 1


class Script(VectorEnv):
  """One game, over and over: step t leaves `lives[t]` and is worth t; with the last it ends.

  Shows which step of the game it is at, and keeps the actions that it was given.
  """

  num_envs = 1
  metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}
  single_observation_space = gymnasium.spaces.Box(0, 255, (1,), np.uint8)
  single_action_space = gymnasium.spaces.Discrete(2)

  def __init__(self, lives, truncates=False):
    self._lives, self._truncates = lives, truncates
    self.actions, self.resets = [], 0

  def reset(self, *, seed=None, options=None):
    self.resets += 1
    self._t, self._over = 0, False
    return self._show()

  def step(self, actions):
    self.actions.append(int(actions[0]))
    if self._over:
      observation, info = self.reset()
      return observation, np.zeros(1), np.zeros(1, bool), np.zeros(1, bool), info
    self._t += 1
    self._over = self._t == len(self._lives) - 1
    observation, info = self._show()
    terminated = np.array([self._over and not self._truncates])
    truncated = np.array([self._over and self._truncates])
    return observation, np.array([self._t], np.int32), terminated, truncated, info

  def _show(self):
    return np.array([[self._t]], np.uint8), {'lives': np.array([self._lives[self._t]], np.int32)}


def play(script, num_steps):
  batch = GymnasiumBatch(LivesAsEpisodes(script, NOOP), None)
  rows, over = [batch.reset()], [batch.game_over]
  for _ in range(num_steps):
    rows.append(batch.step(np.full(1, MOVE, np.int32)))
    over.append(batch.game_over)
  fields = [[field[0].item() for field in row[:3]] + [row.observation.item()] for row in rows]
  return [(*map(int, f), bool(o[0])) for f, o in zip(fields, over, strict=True)]


def test_a_lost_life_is_terminal_and_the_next_row_is_of_the_same_game():
  script = Script([3, 3, 2, 2, 2, 0])
  assert play(script, 7) == [
    # step type, reward, discount, observation, game over
    (FIRST, 0, 1, 0, False),
    (MID, 1, 1, 1, False),
    (LAST, 2, 0, 2, False),
    (FIRST, 0, 1, 3, False),
    (MID, 3 + 4, 1, 4, False),  # With what the step before was worth.
    (LAST, 5, 0, 5, True),
    (FIRST, 0, 1, 0, False),
    (MID, 1, 1, 1, False),
  ]
  assert script.actions == [MOVE, MOVE, NOOP, MOVE, MOVE, MOVE, MOVE]
  assert script.resets == 2


def test_a_life_lost_in_the_step_that_begins_one_is_noticed_at_the_next():
  rows = play(Script([3, 2, 1, 1, 1, 1]), 4)
  assert [row[0] for row in rows] == [FIRST, LAST, FIRST, LAST, FIRST]


def test_no_life_left_is_not_yet_the_end():
  rows = play(Script([1, 0, 0, 0]), 4)
  assert [row[0] for row in rows] == [FIRST, MID, MID, LAST, FIRST]


def test_a_game_that_is_cut_where_a_life_begins_makes_room_for_the_next():
  rows = play(Script([3, 2, 2], truncates=True), 4)
  assert [row[0] for row in rows] == [FIRST, LAST, FIRST, LAST, FIRST]
  assert [row[4] for row in rows] == [False, False, True, False, True]
  assert [row[3] for row in rows] == [0, 1, 0, 1, 0]


def test_a_game_that_begins_with_fewer_lives_than_the_last_had_is_no_lost_life():
  rows = play(Script([3, 4, 4, 4], truncates=True), 6)
  assert [row[0] for row in rows] == [FIRST, MID, MID, LAST, FIRST, MID, MID]
  assert [row[2] for row in rows] == [1] * 7


class Mover:
  """Answers every timestep."""

  def send(self, timestep):
    del timestep

  def receive(self):
    return np.full(1, MOVE, np.int32)


def test_an_evaluation_counts_games():
  batch = GymnasiumBatch(LivesAsEpisodes(Script([3, 3, 2, 2, 2, 0]), NOOP), None)
  assert list(play_episodes(batch, Mover(), 2)) == [Episode(15.0, 4, 0), Episode(15.0, 4, 1)]
