"""Adapters of suites make the rows of the contract from the suite's own steps."""

import dataclasses
import importlib
import sys
from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin import contract_check
from agents.anakin.environment import next_row
from agents.anakin.environments import errors, physics, suite
from agents.types import FIRST, LAST, MID
from environments import either, jax_registry, registry


class Seen(NamedTuple):
  place: jax.Array
  inner: dict


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Cell:
  number: jax.Array


class Road(suite.SuiteEnvironment):
  """A suite's road of places from 0; action 1 goes on, and the end is in place 3."""

  def __init__(self, limit=0, agents=()):
    self.agents = agents
    super().__init__('road:long', suite.discrete(2), limit)

  def _begin(self, key):
    state = {'place': 0, 'info': {'steps': jnp.zeros(())}}
    return state, self._look(state)

  def _move(self, state, action, key):
    state['info']['steps'] = state['info']['steps'] + 1.0  # As Brax does.
    state = {**state, 'place': state['place'] + action}
    reward = jnp.broadcast_to(state['place'] * 1.0, self.agents)
    return suite.Moved(state, self._look(state), reward, state['place'] == 3, state['place'] == 9)

  def _look(self, state):
    place = jnp.asarray(state['place'])
    inner = {'cell': Cell(place.astype(jnp.float16)), 'few': place.astype(jnp.uint8)}
    return Seen(place > 1, inner)


def play(environment, actions):
  keys = jax.random.split(jax.random.key(0), len(actions) + 1)
  state, row = environment.reset(keys[0])
  rows = [row]
  for action, key in zip(actions, keys[1:], strict=True):
    state, row = next_row(environment, state, row.step_type, jnp.int32(action), key)
    rows.append(row)
  return state, jax.tree.map(lambda *xs: np.stack(xs), *rows)


def test_an_end_terminates_and_its_row_shows_the_last_observation():
  state, rows = play(Road(), [1, 0, 1, 1, 0, 1])
  assert rows.step_type.tolist() == [FIRST, MID, MID, MID, LAST, FIRST, MID]
  assert rows.discount.tolist() == [1, 1, 1, 1, 0, 1, 1]
  assert rows.reward.tolist() == [0, 1, 1, 2, 3, 0, 1]
  assert rows.observation['inner']['few'].tolist() == [0, 1, 1, 2, 3, 0, 1]
  assert state.steps == 1


@pytest.mark.parametrize('actions, discount', [([1, 1, 0], 1), ([1, 1, 1], 0)])
def test_the_time_limit_truncates_unless_the_episode_has_ended(actions, discount):
  _, rows = play(Road(limit=3), [*actions, 0])
  assert rows.step_type.tolist() == [FIRST, MID, MID, LAST, FIRST]
  assert rows.discount[3] == discount
  assert rows.observation['inner']['few'][3] == sum(actions)


def test_observations_are_nests_of_arrays_and_states_keep_their_dtypes():
  environment = Road()
  contract_check.check(environment)
  spec = environment.observation_spec
  assert spec['place'].dtype == bool and spec['inner']['few'].dtype == np.uint8
  assert spec['inner']['cell']['number'].dtype == np.float32
  state, _ = environment.reset(jax.random.key(0))
  environment.step(state, jnp.int32(1), jax.random.key(0))
  assert state.suite['info']['steps'] == 0  # The suite wrote into a copy.


@pytest.mark.parametrize(
  'make, words',
  [
    (lambda: Road(limit=-1), 'max_episode_steps=-1 must be 0 or more'),
    (lambda: Road(agents=(2,)), '--env=road:long has 2 rewards in a step'),
    (lambda: given(num_row=3), 'num_row: road has no such option; did you mean num_rows'),
    (lambda: given(num_rows=1.5), 'num_rows=1.5: num_rows must be an integer'),
    (lambda: given(slope='steep'), 'slope=steep: slope must be a number'),
    (lambda: given(fast=1), 'fast=1: fast must be true or false'),
    (lambda: given(limit='x'), 'limit=x: limit must be an integer'),
    (lambda: fail(), '--env=road:x cannot be made: no such place$'),
  ],
)
def test_mistakes_are_named_in_one_sentence(make, words):
  with pytest.raises(ValueError, match=words) as raised:
    make()
  assert '\n' not in str(raised.value)


def constructor(num_rows: int = 2, slope=0.5, fast=False, limit: int | None = None, viewer=None):
  return None


def given(**options):
  return suite.arguments('road', options, suite.defaults(constructor))


def fail():
  with errors.one_sentence('road:x'):
    raise RuntimeError('no such place\nat all')


def test_options_of_a_constructor_have_the_types_of_its_defaults():
  assert given(num_rows=3, slope=1, limit=7) == {'num_rows': 3, 'slope': 1.0, 'limit': 7}
  assert set(suite.defaults(constructor)) == {'num_rows', 'slope', 'fast', 'limit'}


class Body(NamedTuple):
  obs: jax.Array
  reward: jax.Array
  done: jax.Array


class Explodes:
  """Physics whose state becomes infinite when it is pushed hard, and which is done at 2."""

  action_size = 1

  def reset(self, rng):
    return Body(jnp.ones(2), jnp.float32(0), jnp.float32(0))

  def step(self, state, action):
    obs = state.obs + jnp.where(action[0] > 0.9, jnp.inf, action)
    return Body(obs, obs[0] - obs[0] + 1.0, (obs[0] >= 2).astype(jnp.float32))


@pytest.mark.parametrize('push, last, discount', [(0.5, [2, 2], 0), (1.0, [0, 0], 0), (0.1, [], 1)])
def test_physics_that_diverges_ends_in_a_row_of_finite_numbers(push, last, discount):
  environment = physics.Physics('body:x', Explodes(), 3)
  contract_check.check(environment)
  assert isinstance(environment.action_spec, dm_env.specs.BoundedArray)
  state, row = environment.reset(jax.random.key(0))
  for _ in range(3):
    if row.step_type == LAST:
      break
    state, row = environment.step(state, jnp.float32([push]), jax.random.key(0))
  assert row.step_type == LAST and row.discount == discount
  assert np.isfinite(row.observation).all() and np.isfinite(row.reward)
  assert not last or row.observation.tolist() == last


SUITES = {
  'brax:hopper': ('brax', 'brax'),
  'craftax:Craftax-Symbolic-v1': ('craftax', 'craftax'),
  'jumanji:Snake-v1': ('jumanji', 'jumanji'),
  'navix:Navix-Empty-8x8-v0': ('navix', 'navix'),
  'playground:CheetahRun': ('mujoco_playground', 'playground'),
}


@pytest.mark.parametrize('name', SUITES)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, name):
  module, package = SUITES[name]
  adapter = f'agents.anakin.environments.{name.partition(":")[0]}'
  monkeypatch.setitem(sys.modules, module, None)
  monkeypatch.delitem(sys.modules, adapter, raising=False)
  monkeypatch.delattr(importlib.import_module('agents.anakin.environments'), package, raising=False)
  with pytest.raises(ValueError, match=f'--env={name} .*`make add PACKAGES={package}`') as raised:
    jax_registry.make(name)
  assert '\n' not in str(raised.value)
  assert either.of(name) is jax_registry


def test_actors_refuse_a_suite_in_jax_and_name_the_program_that_plays_it():
  with pytest.raises(ValueError, match=r'jumanji:Snake-v1 is written in JAX.*--program=anakin'):
    registry.make('jumanji:Snake-v1', 1, 0)
