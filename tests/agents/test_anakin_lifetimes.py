"""Lifetimes of inner episodes: what stays, what ends when, and the rules of the four tasks."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import lifetimes
from agents.anakin.environment import next_row
from agents.anakin.environments import lifetime
from agents.types import FIRST, LAST, MID

UP, DOWN, EXITED_EARLY, RIGHT = range(4)


def play(environment, actions, seed=0):
  """Returns the rows of given actions, the first one included, and the states, `[T + 1]`."""

  @jax.jit
  def run(key):
    first = environment.reset(key)

    def step(carry, action):
      later = next_row(environment, carry[0], carry[1].step_type, action, key)
      return later, later

    _, later = jax.lax.scan(step, first, jnp.asarray(actions))
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, later)

  state, rows = jax.device_get(run(jax.random.key(seed)))
  return rows, state


def ended(rows):
  return lifetimes.ended(rows.observation).astype(int).tolist()


def test_the_spec_survives_pickling_and_describes_the_rows():
  environment = lifetime.make('key_box', size=3)
  spec = pickle.loads(pickle.dumps(environment.observation_spec))
  assert isinstance(spec, lifetimes.LifetimeObservation) and spec.num_features == 18
  rows, _ = play(environment, [UP] * 5)
  spec.validate(rows.observation[3])
  assert (lifetimes.features(rows.observation).sum(-1) == 1).all()


def test_random_abc_is_a_choice_between_rewards_that_stay_for_the_lifetime():
  rows, state = play(lifetime.make('random_abc', episodes=6), [0, 1, 2, 0, 1, 2, 0, 0])
  np.testing.assert_array_equal(rows.reward[1:4], state.task[0])
  np.testing.assert_array_equal(rows.reward[4:7], state.task[0])
  assert rows.step_type.tolist() == [FIRST, *[MID] * 5, LAST, FIRST, MID]
  assert ended(rows) == [0, 1, 1, 1, 1, 1, 1, 0, 1]
  assert rows.discount.tolist() == [1, 1, 1, 1, 1, 1, 0, 1, 1]


def test_the_rewards_of_abc_are_uniform_in_their_ranges():
  draws = jax.vmap(lifetime.Objects(1).draw)(jax.random.split(jax.random.key(0), 4_000))
  np.testing.assert_allclose(draws.mean(0), [0, -0.25, 0.25], atol=0.03)
  for column, low, high in zip(draws.T, (-1, -0.5, 0), (1, 0, 0.5), strict=True):
    assert low <= column.min() < low + 0.01 and high - 0.01 < column.max() <= high


def test_a_room_has_walls_objects_in_corners_and_a_limit_of_steps():
  environment = lifetime.make('random_abc', size=3, episode_steps=4, episodes=3)
  # Into the top wall and right to A; four times into the wall; down and right to C.
  rows, state = play(environment, [UP, UP, RIGHT, *[UP] * 4, DOWN, RIGHT])
  assert state.cell.tolist() == [4, 1, 1, 4, 1, 1, 1, 4, 7, 4]
  assert ended(rows) == [0, 0, 0, 1, 0, 0, 0, 1, 0, 1]
  assert rows.reward.tolist() == [0, 0, 0, state.task[0, 0], 0, 0, 0, 0, 0, state.task[0, 2]]
  assert rows.step_type[-1] == LAST and rows.discount[-1] == 0
  seen = lifetimes.features(rows.observation).argmax(-1)
  np.testing.assert_array_equal(seen, state.cell)


def test_a_box_opens_only_with_the_key_which_is_lost_between_episodes():
  rows, state = play(lifetime.make('key_box', episode_steps=4), [0, 3, 3, 1, 1, 2, 3, 0])
  a, b, _ = state.task[0]
  np.testing.assert_allclose(rows.reward[1:], [0, -0.1, 0, b, 0, 0, -0.1, a], rtol=1e-6)
  assert ended(rows) == [0, 0, 0, 0, 1, 0, 0, 0, 1]
  assert state.item.tolist() == [0, 0, 1, 1, 0, 0, 0, 1, 0]
  # The agent sees whether it holds the key.
  assert len({tuple(x) for x in rows.observation[[2, 3]]}) == 1
  assert (rows.observation[5] != rows.observation[0]).any()


def test_nonstationary_abc_swaps_a_and_c():
  environment = lifetime.make('nonstationary_abc', swap_episodes=2, episodes=6)
  rows, state = play(environment, [0, 2, 0, 2, 1, 0])
  a = state.task[0, 0]
  assert a in (-1, 1)
  assert rows.reward[1:].tolist() == [a, -a, -a, a, -0.5, a]
  draws = jax.vmap(lifetime.Swapped(1, 2).draw)(jax.random.split(jax.random.key(0), 99))
  assert set(np.unique(draws[:, 0])) == {-1, 1}


def test_empty_rooms_hide_a_goal_that_is_never_the_start():
  keys = jax.random.split(jax.random.key(0), 4_000)
  goals = np.bincount(jax.vmap(lifetime.Goal(3).draw)(keys), minlength=9)
  assert goals[4] == 0 and (np.delete(goals, 4) > 400).all()
  # Once around the room, from the middle: the goal lies on the way.
  way = [1, 0, 3, 6, 7, 8, 5, 2]
  environment = lifetime.make('empty_rooms', size=3)
  rows, state = play(environment, [UP, EXITED_EARLY, DOWN, DOWN, RIGHT, RIGHT, UP, UP])
  steps = way.index(state.task[0]) + 1
  assert state.cell[:steps].tolist() == [4, *way[: steps - 1]]
  assert state.cell[steps] == 4 and ended(rows)[: steps + 1] == [0] * steps + [1]
  assert rows.reward[: steps + 1].tolist() == [0] * steps + [1]


def test_a_lifetime_ends_after_its_steps_too():
  rows, _ = play(lifetime.make('empty_rooms', lifetime_steps=7), [UP] * 8)
  assert rows.step_type.tolist() == [FIRST, *[MID] * 6, LAST, FIRST]


@pytest.mark.parametrize(
  'task, options, message',
  [
    ('empty_room', {}, 'did you mean empty_rooms'),
    ('random_abc', {'size': 2}, 'size=2 .* set 1, or 3 to 1000'),
    ('empty_rooms', {'size': 1}, 'set 2 to 1000'),
    ('empty_rooms', {'size': 1001}, 'set 2 to 1000'),
    ('random_abc', {'episodes': -1}, 'episodes=-1 must be 0'),
    ('nonstationary_abc', {'swap_episodes': 0}, 'swap_episodes=0 must be at least 1'),
  ],
)
def test_wrong_options_name_the_fix(task, options, message):
  with pytest.raises(ValueError, match=message):
    lifetime.make(task, **options)
