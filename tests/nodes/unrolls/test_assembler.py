import numpy as np
import pytest

from agents.types import Timestep
from nodes.inference.env_groups import EpisodeStatistics
from nodes.inference.layout import layout
from nodes.unrolls.assembler import CoreStateRows, UnrollAssembler


def _row(t, num_envs=2):
  values = np.arange(num_envs) * 1000 + t
  return Timestep(
    step_type=np.full(num_envs, 1, np.uint8),
    reward=values.astype(np.float32),
    discount=np.ones(num_envs, np.float32),
    observation=values[:, None].astype(np.float32),
  )


def _append(assembler, t, num_envs=2):
  state = {
    's': np.arange(num_envs + 3) * 1000.0 + t
  }  # As in a batch where other groups come after.
  return assembler.append(
    _row(t, num_envs),
    np.full(num_envs, t % 7, np.int32),
    {'q': np.full((num_envs, 3), t, np.float32)},
    t // 10,
    CoreStateRows(state, 0, num_envs),
  )


@pytest.mark.parametrize('rows, period', [(5, 4), (5, 5), (7, 2), (6, 3), (3, 1), (1, 1)])
def test_unrolls_are_consecutive_rows_with_the_state_before_their_first(rows, period):
  assembler = UnrollAssembler(2, rows, period, first_environment_id=6)
  starts = []
  for t in range(40):
    unroll = _append(assembler, t)
    if unroll is None:
      continue
    start = int(unroll.timestep.reward[0, 0])
    starts.append(start)
    expected = np.arange(start, start + rows)
    assert t == start + rows - 1
    np.testing.assert_array_equal(unroll.timestep.reward, [expected, expected + 1000])
    np.testing.assert_array_equal(unroll.timestep.observation[1, :, 0], expected + 1000)
    np.testing.assert_array_equal(unroll.action[0], expected % 7)
    np.testing.assert_array_equal(unroll.extras['q'][1, :, 2], expected)
    np.testing.assert_array_equal(unroll.policy_version[0], expected // 10)
    np.testing.assert_array_equal(unroll.core_state['s'], [start, 1000 + start])
    np.testing.assert_array_equal(unroll.environment_id, [6, 7])
    assembler.release(unroll)
  assert starts == list(range(0, 40 - rows + 1, period))


def test_wipe_drops_the_half_built_unroll_and_counts_its_rows():
  assembler = UnrollAssembler(2, rows=5, period=4)
  for t in range(
    7
  ):  # One unroll of rows 0..4; row 4 also begins the next, rows 5 and 6 are its own.
    unroll = _append(assembler, t)
    if unroll is not None:
      assembler.release(unroll)
  assert assembler.reset() == 2 * 2
  assert assembler.reset() == 0
  finished = [_append(assembler, t) for t in range(100, 105)]
  assert finished[:4] == [None] * 4
  np.testing.assert_array_equal(finished[4].timestep.reward[0], np.arange(100, 105))
  np.testing.assert_array_equal(finished[4].core_state['s'], [100, 1100])


def test_a_finished_unroll_is_kept_while_replay_holds_the_other_buffer():
  assembler = UnrollAssembler(1, rows=2, period=1, num_buffers=2)
  assert _append(assembler, 0, 1) is None
  first = _append(assembler, 1, 1)
  assert _append(assembler, 2, 1) is None
  assert assembler.full and assembler.take() is None
  assembler.release(first)
  second = assembler.take()
  np.testing.assert_array_equal(second.timestep.reward, [[1, 2]])
  assert not assembler.full
  assert _append(assembler, 3, 1) is None
  assert assembler.reset() == 1, 'a finished unroll that is dropped is counted by its own rows'
  assert not assembler.full


def test_layout_numbers_training_environments_first_and_without_gaps():
  env_groups = layout(num_actors=2, envs_per_actor=6, env_groups=3, eval_envs=4)
  training = [s for s in env_groups if s.training]
  ids = [s.first_environment_id + i for s in training for i in range(s.num_envs)]
  assert ids == list(range(12))
  assert [(s.actor_id, s.group) for s in training[:4]] == [
    ('actor/0', 0), ('actor/0', 1), ('actor/0', 2), ('actor/1', 0),
  ]  # fmt: skip
  assert (env_groups[-1].actor_id, env_groups[-1].first_environment_id) == ('evaluator/0', 12)


def test_episode_returns_start_over_at_first_rows():
  statistics = EpisodeStatistics(1)
  finished = []
  for step_type, reward in [(0, 0), (1, 1), (2, 2), (0, 0), (2, 5), (0, 0), (1, 7)]:
    row = Timestep(np.array([step_type], np.uint8), np.array([reward], np.float32), None, None)
    returns, lengths = statistics.observe(row)
    finished += list(zip(returns.tolist(), lengths.tolist(), strict=True))
  assert finished == [(3.0, 2), (5.0, 1)]


def test_where_an_episode_is_less_than_a_game_the_statistics_are_of_games():
  statistics = EpisodeStatistics(1)
  finished = []
  for step_type, reward, over in [
    (0, 0, 0), (1, 1, 0), (2, 2, 0), (0, 0, 0), (1, 4, 0), (2, 8, 1), (0, 0, 0), (2, 16, 1),
    (0, 0, 0), (2, 1, 0), (0, 0, 1), (2, 3, 1),
  ]:  # fmt: skip
    row = Timestep(np.array([step_type], np.uint8), np.array([reward], np.float32), None, None)
    returns, lengths = statistics.observe(row, np.array([over], bool))
    finished += list(zip(returns.tolist(), lengths.tolist(), strict=True))
  assert finished == [(15.0, 4), (16.0, 1), (1.0, 1), (3.0, 1)]
