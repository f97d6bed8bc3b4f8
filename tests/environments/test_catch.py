import numpy as np
import pytest
from bsuite.environments import catch as bsuite_catch

from environments.catch import Catch, make


class _Column:
  """A random number generator that always draws `value`."""

  value = 0

  def randint(self, columns):
    assert 0 <= self.value < columns
    return self.value


@pytest.mark.parametrize(('rows', 'columns'), [(10, 5), (4, 7), (2, 2)])
def test_rows_equal_bsuites_for_the_same_balls_and_actions(rows, columns):
  num_envs = 8
  ours = Catch(num_envs, 0, rows, columns)
  theirs = [bsuite_catch.Catch(rows, columns) for _ in range(num_envs)]
  for environment in theirs:
    environment._rng = _Column()
  rng = np.random.default_rng(1)
  balls_seen = set()
  batch = ours.reset()
  for t in range(40 * rows):
    action = rng.integers(3, size=num_envs).astype(np.int32)
    if t > 0:
      batch = ours.step(action)
    for i, environment in enumerate(theirs):
      if batch.step_type[i] == 0:
        environment._rng.value = int(batch.observation[i, 0].argmax())
        balls_seen.add(environment._rng.value)
      row = environment.step(int(action[i]))
      assert batch.step_type[i] == row.step_type
      assert batch.reward[i] == (row.reward or 0)
      assert batch.discount[i] == (1 if row.discount is None else row.discount)
      np.testing.assert_array_equal(batch.observation[i], row.observation)
  assert balls_seen == set(range(columns))


def test_the_first_board_and_a_caught_ball():
  environment = Catch(1, 0, rows=3, columns=1)
  np.testing.assert_array_equal(environment.reset().observation[0], [[1], [0], [1]])
  assert environment.step(np.array([0], np.int32)).reward == 0
  last = environment.step(np.array([2], np.int32))
  np.testing.assert_array_equal(last.observation[0], [[0], [0], [1]])
  assert (last.step_type[0], last.reward[0], last.discount[0]) == (2, 1, 0)


def test_an_action_that_does_not_exist_is_rejected():
  environment = Catch(1, 0)
  environment.reset()
  with pytest.raises(IndexError):
    environment.step(np.array([3], np.int32))


def test_boards_too_small_are_rejected():
  with pytest.raises(ValueError, match='--env_options=rows=1'):
    make('', 1, 0, rows=1)
  with pytest.raises(ValueError, match='--env_options=columns=0'):
    make('', 1, 0, columns=0)
