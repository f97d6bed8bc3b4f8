"""A reset costs what it is worth, and changes no row."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin import contract_check, work
from agents.anakin.environment import has_cheap_reset, next_row, next_rows
from agents.anakin.environments import catch, gymnax, lifetime, minatar, pgx
from agents.types import FIRST, LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.levels import Levels, Returning

# What tests/agents/anakin_devices.py plays.
CATCH = Levels()
AGENT = VTrace(
  VTraceConfig(unroll_length=6, mlp_sizes=(16,), learning_rate=1e-2, adam_eps=1e-3),
  CATCH.observation_spec,
  CATCH.action_spec,
)


def shapes(environment):
  """Returns the shapes of a state, an action and a key."""
  key = jax.eval_shape(lambda: jax.random.key(0))
  action = jax.ShapeDtypeStruct(environment.action_spec.shape, environment.action_spec.dtype)
  return jax.eval_shape(environment.reset, key)[0], action, key


@pytest.mark.parametrize(
  'make',
  [
    catch.Catch,
    *(
      lambda name=name: gymnax.make(name)
      for name in ('CartPole-v1', 'Pendulum-v1', 'Breakout-MinAtar', 'FourRooms-misc')
    ),
    lambda: minatar.make('Breakout'),
    lambda: lifetime.make('empty_rooms'),
    lambda: pgx.make('connect_four'),
    lambda: pgx.make('tic_tac_toe', opponent='perfect').evaluation,
  ],
)
def test_the_resets_of_our_own_environments_are_cheap(make):
  environment = make()
  assert has_cheap_reset(environment, *shapes(environment))


def test_a_reset_that_computes_far_more_than_a_step_is_expensive():
  assert not has_cheap_reset(Levels(), *shapes(Levels()))


def test_work_counts_the_steps_of_a_scan_and_all_branches():
  x = jnp.zeros((3, 4))
  once = work.elements(jnp.sin, x)
  assert once == 12
  scanned = lambda x: jax.lax.scan(lambda y, _: (jnp.sin(y), None), x, length=5)[0]  # noqa: E731
  assert work.elements(scanned, x) == 5 * once
  branches = lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x)  # noqa: E731
  assert 2 * once <= work.elements(branches, x) < 3 * once
  assert work.elements(jax.jit(scanned), x) == 5 * once


def play(environment, rows_of, num_envs, num_rows=40):
  """Returns the rows `[T, B]` that follow the first, and the last states with the data of their keys."""

  def step(carry, key):
    state, step_type = carry
    keys = jax.random.split(key, num_envs)
    action = jax.vmap(lambda key: jax.random.randint(key, (), 0, 3))(keys)
    state, timestep = rows_of(environment, state, step_type, action, keys)
    return (state, timestep.step_type), timestep

  def run(key):
    state, first = jax.vmap(environment.reset)(jax.random.split(key, num_envs))
    (state, _), rows = jax.lax.scan(step, (state, first.step_type), jax.random.split(key, num_rows))
    return rows, jax.random.key_data(state.key), state.steps

  return jax.device_get(jax.jit(run)(jax.random.key(3)))


def one_by_one(environment, *args):
  return jax.vmap(lambda *one: next_row(environment, *one))(*args)


@pytest.mark.slow
@pytest.mark.parametrize('make', [Levels, Returning])
@pytest.mark.parametrize('num_envs', [1, 5, 70])
def test_expensive_resets_make_the_rows_of_resets_in_every_step(make, num_envs):
  found, expected = (play(make(), rows_of, num_envs) for rows_of in (next_rows, one_by_one))
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  step_type = found[0].step_type
  assert (step_type[1:][step_type[:-1] == LAST] == FIRST).all() and (step_type == LAST).sum() > 3


def test_an_expensive_reset_is_computed_only_where_an_episode_begins():
  begun = collections.Counter()
  environment = Levels(lambda observation: begun.update([observation.tobytes()]))
  assert not has_cheap_reset(environment, *shapes(environment))
  rows, _, _ = play(environment, next_rows, num_envs=16)
  jax.effects_barrier()
  started = rows.observation[rows.step_type == FIRST]
  assert len(started) > 50
  # The batch begins with 16 more.
  assert sum(begun.values()) == len(started) + 16 and len(begun) == len(started) + 16
  assert {row.tobytes() for row in started} <= set(begun)


def test_the_contract_takes_any_pytree():
  contract_check.check(Levels())
  contract_check.check(Returning())
