import os

import numpy as np
import pytest

from environments import registry
from nodes.inference.env_groups import EpisodeStatistics
from tests.waiting import wait_until

FIRST, MID, LAST = 0, 1, 2


def test_the_frame_cap_counts_emulator_frames_and_truncates():
  environment = registry.make('atari:Pong', 2, 0, 'frame_cap=40')
  environment.reset()
  noop = np.zeros(2, np.int32)
  rows = [environment.step(noop) for _ in range(12)]
  environment.close()
  np.testing.assert_array_equal([row.step_type[0] for row in rows], [MID] * 9 + [LAST, FIRST, MID])
  np.testing.assert_array_equal([row.discount for row in rows], 1)
  assert environment.action_repeat == 4


@pytest.mark.slow
@pytest.mark.parametrize('noop_max', [0, 1, 2])
def test_a_game_begins_with_up_to_noop_max_noops(noop_max):
  environment = registry.make('atari:Pong', 16, 0, f'noop_max={noop_max}')
  _, info = environment._env.reset(seed=np.arange(16))
  environment.close()
  assert set(info['episode_frame_number']) == set(range(noop_max + 1))


def test_the_end_of_the_game_terminates():
  """FIRE alone loses Breakout's five balls within 200 steps, and losing one ends no episode."""
  environment = registry.make('atari:Breakout', 1, 0, 'sticky_actions=0')
  environment.reset()
  fire = np.ones(1, np.int32)
  rows = [environment.step(fire) for _ in range(200)]
  environment.close()
  ends = [t for t, row in enumerate(rows) if row.step_type[0] == LAST]
  assert len(ends) == 1
  assert rows[ends[0]].discount[0] == 0
  assert rows[ends[0] + 1].step_type[0] == FIRST


def play(options, num_steps, num_envs=1):
  """Fires all the time; returns the rows, and for each whether a game ended."""
  environment = registry.make('atari:Breakout', num_envs, 0, f'sticky_actions=0,{options}')
  rows, over = [environment.reset()], [environment.game_over]
  for _ in range(num_steps):
    rows.append(environment.step(np.ones(num_envs, np.int32)))
    over.append(environment.game_over)
  environment.close()
  return rows, over


def test_losing_a_life_ends_an_episode_and_the_game_continues():
  """FIRE alone loses Breakout's five balls within 130 steps."""
  rows, over = play('life_loss_terminates=true', 130)
  ends = [t for t, row in enumerate(rows) if row.step_type[0] == LAST]
  assert len(ends) == 5
  assert [rows[t].discount[0] for t in ends] == [0] * 5
  assert [rows[t + 1].step_type[0] for t in ends] == [FIRST] * 5
  assert [t for t, ended in enumerate(over) if ended[0]] == ends[-1:]
  # It is one game: without FIRE, which begins a life here only a step late, all is as it was.
  whole, _ = play('life_loss_terminates=false', ends[0] + 1)
  np.testing.assert_array_equal(rows[ends[0]].observation, whole[ends[0]].observation)
  assert not np.array_equal(rows[ends[0] + 1].observation, rows[0].observation)
  np.testing.assert_array_equal(rows[ends[-1] + 1].observation, rows[0].observation)


@pytest.mark.slow
def test_the_lives_of_a_game_add_up_to_its_score():
  actions = np.random.default_rng(3).integers(18, size=(700, 4)).astype(np.int32)

  def games(options):
    environment = registry.make('atari:Breakout', 4, 2, options)
    statistics, found = EpisodeStatistics(4), []
    row = environment.reset()
    total = np.zeros(4)
    for action in actions:
      returns, _ = statistics.observe(row, environment.game_over)
      found += returns.tolist()
      total += row.reward
      row = environment.step(action)
    environment.close()
    return found, total.sum()

  lives, rewards = games('life_loss_terminates=true')
  assert len(lives) >= 4 and 0 < sum(lives) <= rewards
  # Games, and not lives: with five lives there are as many as without the option.
  assert abs(len(lives) - len(games('')[0])) <= 2


def test_a_game_that_is_cut_where_a_life_begins_makes_room_for_the_next():
  """The first ball is lost with frame 100 of the emulator; frame 104 is where the game is cut."""
  rows, over = play('life_loss_terminates=true,frame_cap=104', 52)
  ends = [t for t, row in enumerate(rows) if row.step_type[0] == LAST]
  assert ends == [25, 51] and not over[25][0] and over[26][0]
  assert rows[26].step_type[0] == FIRST
  np.testing.assert_array_equal(rows[26].observation, rows[0].observation)
  np.testing.assert_array_equal(rows[51].observation, rows[25].observation)


def test_rewards_are_raw():
  environment = registry.make('atari:SpaceInvaders', 4, 0)
  environment.reset()
  rng = np.random.default_rng(0)
  rewards = [environment.step(rng.integers(18, size=4).astype(np.int32)).reward for _ in range(150)]
  environment.close()
  # Invaders are worth 5 points each in the bottom row, and more above.
  assert {0, 5} <= set(np.unique(rewards))
  assert not set(np.unique(rewards)) & {1}


def test_games_have_two_spellings_and_an_action_set():
  for name in ('atari:MsPacman', 'atari:ms_pacman'):
    assert registry.make_spec(name, 'full_action_space=false').actions.num_values == 9


def test_the_screen_may_be_small():
  environment = registry.make('atari:Pong', 2, 0, 'screen=42')
  assert environment.reset().observation.shape == (2, 42, 42)
  environment.close()


def test_the_protocol_names_what_a_score_depends_on():
  environment = registry.make('atari:Pong', 1, 0)
  environment.close()
  assert environment.protocol == (
    'sticky_actions=0.25 full_action_space=True noop_max=0 life_loss_terminates=False '
    'fire_reset=False frame_cap=108000 (unit: emulator frames) action_repeat=4 maxpool=True '
    'screen=84 rewards=raw'
  )


def test_closing_ends_the_threads():
  before = set(os.listdir('/proc/self/task'))
  environment = registry.make('atari:Pong', 4, 0, 'num_threads=2')
  environment.reset()
  started = set(os.listdir('/proc/self/task')) - before
  assert len(started) == 2
  environment.close()
  wait_until(lambda: not started & set(os.listdir('/proc/self/task')))


def test_more_threads_do_not_change_the_rows():
  def roll(options):
    environment = registry.make('atari:Pong', 4, 7, options)
    rng = np.random.default_rng(0)
    rows = [environment.reset()]
    rows += [environment.step(rng.integers(18, size=4).astype(np.int32)) for _ in range(30)]
    environment.close()
    return np.stack([row.observation for row in rows])

  np.testing.assert_array_equal(roll('num_threads=1'), roll('num_threads=2'))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ('sticky_actions=1.5', r'sticky_actions must be in \[0, 1\]'),
    ('noop_max=-1', 'noop_max must be from 0 to'),
    ('action_repeat=0', 'action_repeat must be at least 1'),
    ('frame_cap=3', 'frame_cap must be at least action_repeat=4'),
    ('action_repeat=1', 'maxpool must be false where action_repeat=1'),
    ('num_threads=0', 'num_threads must be at least 1'),
  ],
)
def test_options_out_of_range(options, message):
  with pytest.raises(ValueError, match=message):
    registry.trial('atari:Pong', options)
