"""The families of other suites in JAX, with their packages, which `make jax-suites` installs."""

import importlib.util
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env.specs import DiscreteArray
from flax import serialization

from agents.anakin import contract_check
from agents.anakin.environment import has_cheap_reset, next_rows
from agents.types import FIRST, LAST, MID
from environments import jax_registry
from rundir import checkpoints
from tests.programs_under_test import DONE, log_text

MODULES = {
  'brax': 'brax',
  'craftax': 'craftax',
  'jumanji': 'jumanji',
  'navix': 'navix',
  'playground': 'mujoco_playground',
}
MISSING = {name for name, module in MODULES.items() if importlib.util.find_spec(module) is None}
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


def make(name, options=''):
  need(name)
  return jax_registry.make(name, options)


def need(name):
  if (family := name.partition(':')[0]) in MISSING:
    pytest.skip(f'{family} is not installed: make jax-suites')


def play(environment, num_envs, num_rows):
  """Returns the rows `[T, B]` after the first, with legal actions at random."""
  spec = environment.action_spec

  def choose(keys, timestep):
    if not isinstance(spec, DiscreteArray):
      return jax.random.uniform(keys[0], (num_envs, *spec.shape), spec.dtype, -1.0, 1.0)
    legal = jnp.ones((num_envs, spec.num_values), bool)
    if isinstance(timestep.observation, dict):
      legal = timestep.observation.get('action_mask', legal)
    logits = jnp.where(legal | ~legal.any(-1, keepdims=True), 0.0, -jnp.inf)
    return jax.vmap(jax.random.categorical)(keys, logits)

  def step(carry, key):
    state, timestep = carry
    keys = jax.random.split(key, num_envs)
    actions = choose(keys, timestep)
    rows = next_rows(environment, state, timestep.step_type, actions, keys)
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), rows), rows[1]

  def run(key):
    first = jax.vmap(environment.reset)(jax.random.split(key, num_envs))
    first = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), first)
    return jax.lax.scan(step, first, jax.random.split(key, num_rows))[1]

  return jax.device_get(jax.jit(run)(jax.random.key(0)))


@pytest.mark.parametrize(
  'name, options, num_rows, cheap',
  [
    ('jumanji:Maze-v0', '', 210, False),
    ('jumanji:Game2048-v1', '', 400, True),
    ('jumanji:Snake-v1', 'num_rows=6,num_cols=6,time_limit=50', 120, True),
    ('jumanji:Tetris-v0', '', 120, True),
    ('craftax:Craftax-Classic-Symbolic-v1', 'max_episode_steps=40', 90, False),
    ('navix:Navix-Empty-8x8-v0', 'max_episode_steps=30', 70, None),
    ('navix:Navix-DoorKey-6x6-v0', 'observation=categorical_first_person', 300, None),
    ('brax:inverted_pendulum', 'max_episode_steps=30', 70, None),
    ('playground:CartpoleSwingup', 'max_episode_steps=20', 45, None),
  ],
)
def test_rows_follow_the_contract(name, options, num_rows, cheap):
  environment = make(name, options)
  contract_check.check(environment)
  key = jax.eval_shape(lambda: jax.random.key(0))
  state, _ = jax.eval_shape(environment.reset, key)
  action = jax.ShapeDtypeStruct(environment.action_spec.shape, environment.action_spec.dtype)
  assert cheap in (None, has_cheap_reset(environment, state, action, key))
  rows = play(environment, 4, num_rows)
  step_type = rows.step_type
  assert set(np.unique(step_type)) == {FIRST, MID, LAST}
  np.testing.assert_array_equal(step_type[1:] == FIRST, step_type[:-1] == LAST)
  assert np.isfinite(rows.reward).all() and (rows.discount[step_type == MID] == 1).all()
  # Specs, labels among them, hold for every row: the last of an episode too.
  specs = jax.tree.leaves(environment.observation_spec)
  for spec, leaf in zip(specs, jax.tree.leaves(rows.observation), strict=True):
    for value in leaf[:, 0]:
      spec.validate(value)
  # Every episode begins with a state of its own, except in a fixed layout.
  if 'Empty' not in name:
    first = [x[step_type == FIRST] for x in jax.tree.leaves(rows.observation)]
    flat = np.hstack([np.float32(x).reshape(len(x), -1) for x in first])
    assert len(np.unique(flat, axis=0)) > 1


def first_end(environment, choose):
  """Returns the rows of one episode, and the states before each of them."""
  state, row = jax.jit(environment.reset)(jax.random.key(1))
  step, states, rows = jax.jit(environment.step), [], []
  while row.step_type != LAST:
    states.append(state)
    state, row = step(state, choose(len(rows)), jax.random.key(len(rows)))
    rows.append(row)
  return rows, states


@pytest.mark.parametrize(
  'name, options, limit',
  [
    ('craftax:Craftax-Classic-Symbolic-v1', 'max_episode_steps=5', 5),
    ('navix:Navix-Empty-8x8-v0', 'max_episode_steps=5', 5),
    ('brax:halfcheetah', 'max_episode_steps=5', 5),
    ('playground:CheetahRun', 'max_episode_steps=5', 5),
    ('jumanji:PacMan-v1', 'time_limit=5', 5),
  ],
)
def test_a_time_limit_truncates_with_the_true_last_observation(name, options, limit):
  environment = make(name, options)
  spec = environment.action_spec
  action = jnp.zeros(spec.shape, spec.dtype)
  rows, states = first_end(environment, lambda i: action)
  assert len(rows) == limit and rows[-1].discount == 1
  # The same step without any limit shows the same observation.
  _, free = environment.step(states[-1]._replace(steps=jnp.int32(0)), action, jax.random.key(4))
  jax.tree.map(np.testing.assert_allclose, rows[-1].observation, free.observation)


def test_navix_terminates_in_the_goal():
  environment = make('navix:Navix-Empty-5x5-v0')
  # Right, then forward twice, right, forward twice; the agent begins in the corner, facing east.
  path = [2, 2, 1, 2, 2]
  rows, _ = first_end(environment, lambda i: jnp.int32(path[i]))
  assert [float(row.reward) for row in rows] == [0, 0, 0, 0, 1]
  assert rows[-1].discount == 0


def test_a_death_in_the_step_of_craftaxs_limit_terminates():
  environment = make('craftax:Craftax-Classic-Symbolic-v1', 'max_episode_steps=1')
  state, _ = environment.reset(jax.random.key(0))
  dying = state._replace(suite=state.suite.replace(player_health=jnp.int32(-9)))
  assert environment.step(state, jnp.int32(0), jax.random.key(0))[1].discount == 1
  assert environment.step(dying, jnp.int32(0), jax.random.key(0))[1].discount == 0


def test_jumanji_plays_combinations_of_actions_under_one_mask():
  environment = make('jumanji:Minesweeper-v0')
  assert environment.action_spec.num_values == 100
  state, row = environment.reset(jax.random.key(0))
  mask = row.observation['action_mask']
  assert mask.shape == (100,) and mask.all()
  _, row = environment.step(state, jnp.int32(37), jax.random.key(0))
  opened = np.argwhere(row.observation['board'] >= 0)
  assert opened.tolist() == [[3, 7]] or row.step_type == LAST
  assert not row.observation['action_mask'][37]


def test_jumanjis_time_limit_terminates_where_the_agent_sees_the_clock():
  environment = make('jumanji:Game2048-v1')
  assert 'step_count' not in environment.observation_spec
  environment = make('jumanji:RubiksCube-v0', 'time_limit=3')
  rows, _ = first_end(environment, lambda i: jnp.int32([i, 0, 0]))
  assert [round(float(r.observation['step_count']), 3) for r in rows] == [0.333, 0.667, 1]
  assert rows[-1].discount == 0


@pytest.mark.parametrize(
  'name, options, words',
  [
    ('jumanji:Snak-v1', '', 'did you mean Snake-v1'),
    ('jumanji:Snake-v1', 'num_row=3', 'did you mean num_rows'),
    ('jumanji:LevelBasedForaging-v0', '', 'jumanji:LevelBasedForaging-v0 has'),
    ('craftax:Craftax-Symbolic', '', 'did you mean Craftax-Symbolic-v1'),
    ('navix:Navix-Empty-9x9-v0', '', 'did you mean Navix-Empty-'),
    ('navix:Navix-Empty-8x8-v0', 'observation=rgb', 'observation=rgb is unknown'),
    ('navix:Navix-Empty-8x8-v0', 'max_episode_steps=-1', 'max_episode_steps=-1 must be 0 or more'),
    ('brax:hoper', '', 'did you mean hopper'),
    ('brax:hopper', 'backend=newton', 'brax:hopper cannot be made'),
    ('playground:CheetahRunn', '', 'did you mean CheetahRun'),
    ('playground:CheetahRun', 'vision=true', 'has no such option'),
  ],
)
def test_mistakes_are_named_in_one_sentence(name, options, words):
  need(name)
  with pytest.raises(ValueError, match=words) as raised:
    jax_registry.make(name, options)
  assert '\n' not in str(raised.value)


@pytest.mark.parametrize(
  'name',
  [
    'jumanji:Maze-v0',
    'craftax:Craftax-Classic-Symbolic-v1',
    'navix:Navix-Empty-8x8-v0',
    'brax:inverted_pendulum',
    'playground:CartpoleBalance',
  ],
)
def test_ppo_trains_and_its_checkpoint_holds_the_states(train, tmp_path, name):
  need(name)
  flags = ('--program=anakin', '--agent=ppo', f'--env={name}', '--preset=none')
  process = train(
    *(*flags, '--eval_episode_steps=200', '--eval_episodes=4', '--num_steps=20000'),
    f'--run_dir={tmp_path}',
    timeout=1500,
  )
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  assert math.isfinite(float(done[1])) and 'Traceback' not in log_text(tmp_path)
  checkpoint = checkpoints.newest(checkpoints.directory(str(tmp_path)))
  assert checkpoint.counts['actor_steps'] >= 20_000
  streams = serialization.msgpack_restore(checkpoint.state)['streams']
  shapes = {x.shape[0] for x in jax.tree.leaves(streams['environment'])}
  assert shapes == {len(streams['environment_id'])}
