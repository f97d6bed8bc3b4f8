"""Environments in JAX follow the row contract, where episodes end above all."""

import dataclasses
import functools
import urllib.error
from typing import NamedTuple

import dm_env.specs
import gymnax as gymnax_suite
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces

from agents.anakin import contract_check
from agents.anakin.environment import next_row
from agents.anakin.environments import catch, gymnax, lifetime, minatar
from agents.types import FIRST, LAST, MID

ENVIRONMENTS = {
  'catch': catch.make,
  'gymnax:CartPole-v1': functools.partial(gymnax.make, max_episode_steps=9),
  'gymnax:Catch-bsuite': gymnax.make,
  'gymnax:MemoryChain-bsuite': gymnax.make,
  'gymnax:Breakout-MinAtar': functools.partial(gymnax.make, max_episode_steps=30),
  'gymnax:FrozenLake-misc': gymnax.make,
  'lifetime:empty_rooms': functools.partial(lifetime.make, lifetime_steps=30),
  'minatar:Breakout': functools.partial(minatar.make, max_episode_steps=30),
  'gymnax:Pendulum-v1': functools.partial(gymnax.make, max_episode_steps=20),
  'gymnax:MountainCarContinuous-v0': functools.partial(gymnax.make, max_episode_steps=20),
}


def make(name):
  return ENVIRONMENTS[name](name.partition(':')[2])


def play(environment, choose, num_rows, num_envs=1, seed=0):
  """Returns the rows `[T, B]` that follow the first, the first `[B]`, and the states before each."""

  def step(carry, key):
    state, timestep = carry
    keys = jax.random.split(key, num_envs)
    action = jax.vmap(choose)(keys, timestep.observation)
    later = jax.vmap(lambda *args: next_row(environment, *args))(
      state, timestep.step_type, action, keys
    )
    return later, (later[1], state)

  @jax.jit
  def run(key):
    first_key, key = jax.random.split(key)
    first = jax.vmap(environment.reset)(jax.random.split(first_key, num_envs))
    _, (rows, states) = jax.lax.scan(step, first, jax.random.split(key, num_rows))
    return rows, first[1], states

  return jax.device_get(run(jax.random.key(seed)))


@pytest.mark.slow
@pytest.mark.parametrize('name', ENVIRONMENTS)
def test_the_row_contract(name):
  environment = make(name)
  spec = environment.action_spec

  def at_random(key, observation):
    if isinstance(spec, dm_env.specs.DiscreteArray):
      return jax.random.randint(key, (), 0, spec.num_values)
    return jax.random.uniform(key, spec.shape, spec.dtype, spec.minimum, spec.maximum)

  rows, first, _ = play(environment, at_random, 100, num_envs=16)
  assert (first.step_type == FIRST).all()
  step_types = np.concatenate([first.step_type[None], rows.step_type])
  assert step_types.dtype == np.uint8 and set(np.unique(step_types)) <= {FIRST, MID, LAST}
  assert (step_types == LAST).any()
  np.testing.assert_array_equal(step_types[1:] == FIRST, step_types[:-1] == LAST)
  started = rows.step_type == FIRST
  assert rows.reward.dtype == rows.discount.dtype == np.float32
  assert (rows.reward[started] == 0).all() and (rows.discount[started] == 1).all()
  assert set(np.unique(rows.discount)) <= {0, 1}
  assert (rows.discount[rows.step_type == MID] == 1).all()
  assert rows.observation.dtype == environment.observation_spec.dtype
  assert rows.observation.shape[2:] == environment.observation_spec.shape
  for observation in rows.observation[:, 0]:
    environment.observation_spec.validate(observation)


def test_a_game_of_catch():
  def towards_the_ball(key, board):
    ball, paddle = jnp.argmax(board[:-1].sum(0)), jnp.argmax(board[-1])
    return jnp.sign(ball - paddle) + 1

  rows, first, _ = play(catch.Catch(), towards_the_ball, 10, num_envs=8)
  for i in range(8):
    assert rows.step_type[:, i].tolist() == [MID] * 8 + [LAST, FIRST]
    assert rows.reward[:, i].tolist() == [0] * 8 + [1, 0]
    assert rows.discount[:, i].tolist() == [1] * 8 + [0, 1]
    ball = first.observation[i, 0].argmax()
    assert rows.observation[3, i, 4, ball] == 1 and rows.observation[3, i].sum() == 2
  assert len(np.unique(first.observation[:, 0].argmax(1))) > 2  # Balls fall in different columns.
  missed, _, _ = play(catch.Catch(), lambda key, board: 0, 9, num_envs=8)
  balls = missed.observation[0, :, 1].argmax(1)
  np.testing.assert_array_equal(missed.reward[-1], np.where(balls == 0, 1, -1))


def test_continuous_actions_have_the_bounds_of_the_suite():
  spec = gymnax.make('Pendulum-v1').action_spec
  assert (spec.shape, spec.dtype) == ((1,), np.float32)
  np.testing.assert_array_equal([spec.minimum, spec.maximum], [[-2], [2]])


def test_minatars_sticky_actions_repeat_the_previous_action():
  """In the first step that is not a move; in the second it may be the first's."""
  environment, num_envs, right, left = minatar.make('Breakout', sticky_actions=0.3), 3000, 3, 1
  step = jax.jit(jax.vmap(environment.step, in_axes=(0, None, 0)))
  keys = jax.random.split(jax.random.key(0), num_envs)
  state, row = jax.jit(jax.vmap(environment.reset))(keys)
  columns = [np.full(num_envs, 4)]
  for i, action in enumerate((right, left)):
    state, row = step(state, action, jax.vmap(lambda key: jax.random.fold_in(key, i))(keys))  # noqa: B023
    columns.append(np.asarray(row.observation)[:, 9, :, 0].argmax(1))
  first, second = np.diff(columns, axis=0)
  error = 4 * np.sqrt(0.3 * 0.7 / num_envs)
  assert set(first) == {0, 1} and abs((first == 0).mean() - 0.3) < error
  moved = first == 1
  assert set(second[moved]) == {-1, 1} and abs((second[moved] == 1).mean() - 0.3) < 1.2 * error
  assert set(second[~moved]) == {-1, 0} and abs((second[~moved] == 0).mean() - 0.3) < 2 * error


@pytest.mark.slow
def test_minatar_is_truncated_after_its_time_limit():
  def after_the_ball(key, board):
    ball, trail, paddle = (jnp.argmax(board[:, :, c].any(0)) for c in (1, 2, 0))
    ahead = jnp.clip(2 * ball - trail, 0, 9)
    return jnp.select([ahead < paddle, ahead > paddle], [1, 3], 0)

  environment = minatar.make('Breakout', sticky_actions=0.0, max_episode_steps=40)
  rows, _, _ = play(environment, after_the_ball, 42, num_envs=8)
  np.testing.assert_array_equal(rows.step_type[:39], MID)
  np.testing.assert_array_equal(rows.step_type[39], LAST)
  np.testing.assert_array_equal(rows.discount[39], 1)
  np.testing.assert_array_equal(rows.step_type[40], FIRST)


def make_unbounded():
  suite, params = gymnax_suite.make('Pendulum-v1')
  return gymnax.Gymnax(suite, params.replace(max_torque=np.inf), 'gymnax:Pendulum-v1')


@pytest.mark.parametrize('limit, discount', [(5, 1.0), (100, 0.0)])
def test_a_time_limit_truncates_and_a_fall_terminates(limit, discount):
  environment = gymnax.make('CartPole-v1', max_episode_steps=limit)
  rows, _, states = play(environment, lambda key, observation: 1, 20)
  last = int(np.flatnonzero(rows.step_type[:, 0] == LAST)[0])
  assert (last == limit - 1) == (discount == 1.0)
  assert rows.discount[last, 0] == discount
  assert rows.step_type[last + 1, 0] == FIRST
  # The LAST row shows where the episode ended, the next row where another begins.
  suite, params = gymnax_suite.make('CartPole-v1')
  before = jax.tree.map(lambda x: x[last, 0], states)
  limited = params.replace(max_steps_in_episode=limit)
  *_, info = jax.jit(suite.step)(jax.random.key(0), before, 1, limited)
  assert bool(info['truncated']) == (discount == 1.0)
  np.testing.assert_allclose(rows.observation[last, 0], info['final_observation'], atol=1e-6)
  assert (np.abs(rows.observation[last + 1, 0]) < 0.051).all()


def test_a_time_limit_that_gymnax_declares_as_a_float_may_be_changed():
  environment = gymnax.make('BernoulliBandit-misc', max_episode_steps=5)
  rows, *_ = play(environment, lambda key, observation: 0, 12)
  assert list(np.flatnonzero(rows.step_type[:, 0] == LAST)) == [4, 10]


@pytest.mark.parametrize(
  'make_one, words',
  [
    (lambda: catch.make('hard'), '--env=catch:hard'),
    (lambda: catch.make('', rows=1), 'rows=1'),
    (lambda: catch.make('', columns=1001), 'columns=1001 is not a board'),
    (lambda: gymnax.make('CartPol-v1'), 'did you mean CartPole-v1'),
    (lambda: make_unbounded(), '--env=gymnax:Pendulum-v1 has actions Box'),
    (lambda: gymnax.make('CartPole-v1', max_episode_steps=-1), 'max_episode_steps=-1'),
    (lambda: minatar.make('breakout'), '--env=minatar:breakout: .* did you mean Breakout'),
    (
      lambda: minatar.make('Breakout', sticky_actions=1.5),
      r'sticky_actions=1.5 must be in \[0, 1\]',
    ),
    (
      lambda: minatar.make('Breakout', max_episode_steps=0),
      'max_episode_steps=0 must be at least 1',
    ),
  ],
)
def test_an_environment_that_cannot_be_played_is_rejected_in_one_sentence(make_one, words):
  with pytest.raises(ValueError, match=words) as raised:
    make_one()
  assert '\n' not in str(raised.value)


def test_data_that_cannot_be_fetched_are_rejected_in_one_sentence(monkeypatch):
  def fetch(task):
    raise urllib.error.URLError('no network')

  monkeypatch.setattr(gymnax.gymnax, 'make', fetch)
  with pytest.raises(ValueError, match=r'^--env=gymnax:CartPole-v1: gymnax cannot fetch'):
    gymnax.make('CartPole-v1')


class Pair(NamedTuple):
  place: jax.Array
  near: jax.Array


class Nested:
  """An environment as gymnax would have it, whose observations are a Dict with a Tuple."""

  def observation_space(self, params):
    del params
    label = spaces.Discrete(5)
    box = spaces.Box(0, 1, (2,), jnp.bool_)
    return spaces.Dict(
      {'pair': spaces.Dict({'place': label, 'near': box}), 'both': spaces.Tuple([label, box])}
    )

  def action_space(self, params):
    del params
    return spaces.Discrete(2)

  def reset_env(self, key, params):
    del key, params
    return self._observe(0), 0

  def step_env(self, key, state, action, params):
    del key, params
    return self._observe(state + action), state + action, 1.0, state > 2, {}

  def is_truncated(self, state, params):
    del params
    return state > 9

  def _observe(self, place):
    near = jnp.array([place > 0, place > 1])
    return {'pair': Pair(place, near), 'both': (place, near)}


def test_a_dict_of_gymnax_is_a_nest_with_labels_and_flags_as_floats():
  environment = gymnax.Gymnax(Nested(), None, 'nested')
  contract_check.check(environment)
  spec = environment.observation_spec
  assert spec.keys() == {'pair', 'both'} and type(spec['both']) is tuple
  assert isinstance(spec['pair']['place'], dm_env.specs.DiscreteArray)
  rows, _, _ = play(environment, lambda key, observation: 1, 3)
  seen = rows.observation
  np.testing.assert_array_equal(seen['pair']['place'][:, 0], [1, 2, 3])
  np.testing.assert_array_equal(seen['both'][1][:, 0], [[1, 0], [1, 1], [1, 1]])
  assert (seen['both'][0].dtype, seen['pair']['near'].dtype) == (np.int32, np.float32)


def test_states_may_have_keys_and_specs_the_dtypes_of_numpy():
  class Keyed(catch.Catch):
    observation_spec = property(
      lambda self: dm_env.specs.Array((10, 5), float), lambda self, spec: None
    )

    def reset(self, key):
      state, timestep = super().reset(key)
      return (state, key), timestep

    def step(self, state, action, key):
      inner, timestep = super().step(state[0], action, key)
      return (inner, key), timestep

  contract_check.check(Keyed())


def test_actions_have_the_dtype_of_their_spec():
  class Remembering(catch.Catch):
    action_spec = property(
      lambda self: dm_env.specs.DiscreteArray(3, np.int8), lambda self, spec: None
    )

    def reset(self, key):
      state, timestep = super().reset(key)
      return (state, jnp.int8(0)), timestep

    def step(self, state, action, key):
      inner, timestep = super().step(state[0], action, key)
      return (inner, action), timestep

  environment = Remembering()
  contract_check.check(environment)
  state, _ = environment.reset(jax.random.key(0))
  (_, remembered), _ = next_row(environment, state, jnp.uint8(0), jnp.int32(2), jax.random.key(1))
  assert (remembered.dtype, int(remembered)) == (np.int8, 2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
  game: catch.CatchState
  seen: list | None


class Unknown:
  """Not known to JAX."""


def _registered(returned, seen):
  return Registered(returned[0], seen), returned[1]


def _changed(**changes):
  """Returns Catch with other functions or specs."""
  return type('Changed', (catch.Catch,), changes)()


@pytest.mark.parametrize(
  'changes, words',
  [
    (
      {'_observe': lambda self, state: {'board': state.ball_row}},
      ['reset()', 'the observation', 'board int32', 'float32 [10, 5]'],
    ),
    (
      {'step': lambda self, state, action, key: ((1, 2), catch.Catch.reset(self, key)[1])},
      ['step() returned a state of 0 int32 [], 1 int32 [], which must be that of reset()'],
    ),
    (
      {
        'reset': lambda self, key: _registered(catch.Catch.reset(self, key), [jnp.zeros(3)]),
        'step': lambda self, state, action, key: _registered(
          catch.Catch.step(self, state.game, action, key), [jnp.zeros(2)]
        ),
      },
      ['step() returned a state of game/ball_column int32 []', 'seen/0 float32 [2], which must be'],
    ),
    (
      {
        'reset': lambda self, key: _registered(catch.Catch.reset(self, key), None),
        'step': lambda self, state, action, key: _registered(
          catch.Catch.step(self, state.game, action, key), []
        ),
      },
      [
        'step() returned a state with the structure PyTreeDef',
        'must be that of reset(), PyTreeDef',
      ],
    ),
    (
      {'reset': lambda self, key: (Unknown(), catch.Catch.reset(self, key)[1])},
      [
        'reset() returned a Unknown (0), which is neither an array nor a pytree',
        'register_dataclass',
      ],
    ),
    (
      {'_observe': lambda self, state: [state.ball_row]},
      ['reset() returned an observation with a list', 'dictionaries and tuples'],
    ),
    (
      {'restart': lambda self, state, key: catch.Catch.reset(self, key)[1]},
      ['restart() must return a state and a timestep'],
    ),
    (
      {'reset': lambda self, key: catch.Catch.reset(self, key)[1]},
      ['reset() must return a state and a timestep'],
    ),
    (
      {
        'reset': lambda self, key: (
          0,
          catch.Catch.reset(self, key)[1]._replace(reward=jnp.zeros(2)),
        )
      },
      ['reset() returned the reward as float32 [2], which must be float32 []'],
    ),
  ],
)
def test_an_environment_that_does_not_keep_to_its_specs_is_rejected(changes, words):
  with pytest.raises(ValueError) as error:
    contract_check.check(_changed(**changes))
  for word in [*words, ', at line ']:
    assert word in str(error.value)
