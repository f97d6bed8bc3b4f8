"""MinAtar on the CPU: the package's games, with our sticky actions and time limit."""

import importlib.util

import numpy as np
import pytest
from acme import specs
from minatar import Environment

from environments import minatar, registry, seeding
from tests.agents.subprocesses import run_python
from tests.environments.minatar_play import EXITED_EARLY, NOOP, RIGHT, TASKS, mixed, scripted

FIRST, MID, LAST = 0, 1, 2
MODULES = dict(
  zip(TASKS, ['asterix', 'breakout', 'freeway', 'seaquest', 'space_invaders'], strict=True)
)
CHANNELS = dict(zip(TASKS, [4, 4, 7, 10, 6], strict=True))
USED_ACTIONS = dict(zip(TASKS, [5, 3, 3, 6, 4], strict=True))


@pytest.mark.parametrize('task', TASKS)
def test_specs(task):
  spec = registry.make_spec(f'minatar:{task}')
  assert spec.observations.shape == (10, 10, CHANNELS[task]) and spec.observations.dtype == bool
  assert spec.actions == specs.DiscreteArray(6, np.int32, 'action')
  minimal = registry.make_spec(f'minatar:{task}', 'full_action_space=false')
  assert minimal.actions.num_values == USED_ACTIONS[task]


@pytest.mark.parametrize('full', [True, False])
@pytest.mark.parametrize('task', TASKS)
def test_rows_are_those_of_the_package(task, full):
  seed, num_envs = 3, 4
  batch = registry.make(
    f'minatar:{task}', num_envs, seed, f'sticky_actions=0,full_action_space={full}'
  )
  games = [Environment(MODULES[task]).env for _ in range(num_envs)]
  for game, game_seed in zip(games, seeding.spawn(seed, num_envs), strict=True):
    game.random = np.random.RandomState(game_seed)
    game.reset()
  meant = np.arange(6) if full else np.array(games[0].minimal_action_set())
  row = batch.reset()
  rng = np.random.default_rng(0)
  ends = rewards = 0
  for _ in range(400):
    np.testing.assert_array_equal(row.observation, [game.state() for game in games])
    action = mixed(task, row.observation, rng, 0.3) if full else rng.integers(len(meant), size=4)
    was_last, row = row.last(), batch.step(action.astype(np.int32))
    for i, game in enumerate(games):
      if was_last[i]:
        game.reset()
        assert (row.step_type[i], row.reward[i], row.discount[i]) == (FIRST, 0, 1)
      else:
        reward, ended = game.act(meant[action[i]])
        assert row.step_type[i] == (LAST if ended else MID)
        assert (row.reward[i], row.discount[i]) == (reward, not ended)
    ends += row.last().sum()
    rewards += row.reward.sum()
  assert task == 'Freeway' or ends
  assert rewards or not full


def test_freeway_is_truncated_after_2500_steps():
  batch = registry.make('minatar:Freeway', 1, 0)
  row = batch.reset()
  for _ in range(2499):
    row = batch.step(np.array([NOOP], np.int32))
    assert row.step_type[0] == MID
  row = batch.step(np.array([NOOP], np.int32))
  assert (row.step_type[0], row.discount[0]) == (LAST, 1)
  assert batch.step(np.array([NOOP], np.int32)).step_type[0] == FIRST


def test_a_time_limit_truncates_and_the_end_of_a_game_terminates():
  """A paddle in the left corner misses the ball in the sixth step."""
  for limit, discount in ((5, 1), (6, 0), (7, 0)):
    batch = registry.make('minatar:Breakout', 8, 0, f'max_episode_steps={limit},sticky_actions=0')
    batch.reset()
    for _ in range(min(limit, 6) - 1):
      row = batch.step(np.full(8, EXITED_EARLY, np.int32))
      np.testing.assert_array_equal(row.step_type, MID)
    row = batch.step(np.full(8, EXITED_EARLY, np.int32))
    np.testing.assert_array_equal(row.step_type, LAST)
    np.testing.assert_array_equal(row.discount, discount)


def test_sticky_actions_repeat_the_previous_action_with_their_probability():
  num_envs, steps, probability = 600, 4, 0.3  # Fewer steps than reach a wall.
  batch = registry.make('minatar:Breakout', num_envs, 0, f'sticky_actions={probability}')
  batch.reset()
  paddle, previous, count = np.full(num_envs, 4), np.full(num_envs, NOOP), 0
  for _ in range(steps):
    meant = np.where(previous == EXITED_EARLY, RIGHT, EXITED_EARLY)
    observation = batch.step(meant.astype(np.int32)).observation
    moved = observation[:, 9, :, 0].argmax(1) - paddle
    repeated = moved == np.select([previous == EXITED_EARLY, previous == RIGHT], [-1, 1], 0)
    np.testing.assert_array_equal(
      moved[~repeated], np.where(meant == EXITED_EARLY, -1, 1)[~repeated]
    )
    paddle, previous = paddle + moved, np.where(repeated, previous, meant)
    count += repeated.sum()
  error = np.sqrt(probability * (1 - probability) / (num_envs * steps))
  assert abs(count / (num_envs * steps) - probability) < 4 * error


def test_an_episode_begins_without_an_action_to_repeat():
  batch = registry.make('minatar:Breakout', 2, 0, 'sticky_actions=1,max_episode_steps=2')
  batch.reset()
  for _ in range(9):
    row = batch.step(np.full(2, EXITED_EARLY, np.int32))
    np.testing.assert_array_equal(row.observation[:, 9, :, 0].argmax(1), 4)


def test_difficulty_ramping_can_be_switched_off():
  """Asterix becomes faster after 101 steps."""
  ramps, stays = (
    registry.make('minatar:Asterix', 16, 0, f'sticky_actions=0,difficulty_ramping={ramping}')
    for ramping in (True, False)
  )
  rows, differ = (ramps.reset(), stays.reset()), []
  for _ in range(250):
    rows = [
      batch.step(scripted('Asterix', row.observation))
      for batch, row in zip((ramps, stays), rows, strict=True)
    ]
    differ.append((rows[0].observation != rows[1].observation).any())
  assert 100 < np.flatnonzero(differ)[0] < 250


def test_an_actor_process_loads_no_display():
  out = run_python(
    '-c',
    'import sys\n'
    'from environments import registry\n'
    'registry.trial("minatar:Breakout")\n'
    'print(*sorted({"matplotlib", "seaborn", "pandas", "jax"} & set(sys.modules)))',
  )
  assert out.strip() == ''


def test_a_missing_package_is_named(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  minatar.load.cache_clear()
  with pytest.raises(
    ValueError, match='the package minatar is not installed; run `make add'
  ) as error:
    registry.make('minatar:Breakout', 1, 0)
  assert '\n' not in str(error.value)
