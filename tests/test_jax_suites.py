"""The adapters of examples/ in Jumanji and Craftax themselves: `make jax-suites` has the packages."""

import importlib.util
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization

from agents.anakin import contract_check
from agents.anakin.environment import has_cheap_reset, next_rows
from agents.types import FIRST, LAST, MID
from environments import jax_registry
from rundir import checkpoints
from tests.programs_under_test import DONE, ROOT, log_text

JUMANJI = f'{ROOT}/examples/from_jumanji.py:make'
CRAFTAX = f'{ROOT}/examples/from_craftax.py:make'
MISSING = [name for name in ('jumanji', 'craftax') if importlib.util.find_spec(name) is None]
pytestmark = [
  pytest.mark.nightly,
  pytest.mark.skipif(bool(MISSING), reason=f'{MISSING} not installed: make jax-suites'),
  pytest.mark.timeout(1800),
]


def play(environment, num_envs, num_rows):
  """Returns the rows `[T, B]` after the first, with legal actions at random."""

  def step(carry, key):
    state, timestep = carry
    keys = jax.random.split(key, num_envs)
    legal = jnp.ones((num_envs, environment.action_spec.num_values), bool)
    if isinstance(timestep.observation, dict):
      legal = timestep.observation.get('action_mask', legal)
    logits = jnp.where(legal | ~legal.any(-1, keepdims=True), 0.0, -jnp.inf)
    actions = jax.vmap(jax.random.categorical)(keys, logits)
    rows = next_rows(environment, state, timestep.step_type, actions, keys)
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), rows), rows[1]

  def run(key):
    first = jax.vmap(environment.reset)(jax.random.split(key, num_envs))
    first = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), first)
    return jax.lax.scan(step, first, jax.random.split(key, num_rows))[1]

  return jax.device_get(jax.jit(run)(jax.random.key(0)))


@pytest.mark.parametrize(
  'name, num_rows, cheap',
  [
    (f'{JUMANJI}:Maze-v0', 210, False),
    (f'{JUMANJI}:Game2048-v1', 400, True),
    (f'{JUMANJI}:Snake-v1', 4100, True),
    (f'{CRAFTAX}:Craftax-Classic-Symbolic-v1', 300, False),
  ],
)
def test_rows_follow_the_contract(name, num_rows, cheap):
  environment = jax_registry.make(name)
  contract_check.check(environment)
  key = jax.eval_shape(lambda: jax.random.key(0))
  state, _ = jax.eval_shape(environment.reset, key)
  action = jax.ShapeDtypeStruct((), environment.action_spec.dtype)
  assert has_cheap_reset(environment, state, action, key) == cheap
  rows = play(environment, 4, num_rows)
  step_type = rows.step_type
  assert set(np.unique(step_type)) == {FIRST, MID, LAST}
  np.testing.assert_array_equal(step_type[1:] == FIRST, step_type[:-1] == LAST)
  assert np.isfinite(rows.reward).all() and (rows.discount[step_type == MID] == 1).all()
  if isinstance(rows.observation, dict) and name.startswith(JUMANJI):
    assert rows.observation['action_mask'].dtype == bool
    # Every episode begins with a state of its own.
    first = [x[step_type == FIRST] for x in jax.tree.leaves(rows.observation)]
    assert len(np.unique(np.hstack([x.reshape(len(x), -1) for x in first]), axis=0)) > 1


@pytest.mark.parametrize('name', [f'{JUMANJI}:Maze-v0', f'{CRAFTAX}:Craftax-Classic-Symbolic-v1'])
def test_ppo_trains_and_its_checkpoint_holds_the_states(train, tmp_path, name):
  flags = ('--program=anakin', '--agent=ppo', f'--env={name}', '--eval_episode_steps=200')
  process = train(*flags, '--num_steps=20000', f'--run_dir={tmp_path}', timeout=1500)
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  assert math.isfinite(float(done[1])) and 'Traceback' not in log_text(tmp_path)
  checkpoint = checkpoints.newest(checkpoints.directory(str(tmp_path)))
  assert checkpoint.counts['actor_steps'] >= 20_000
  streams = serialization.msgpack_restore(checkpoint.state)['streams']
  shapes = {x.shape[0] for x in jax.tree.leaves(streams['environment'])}
  assert shapes == {len(streams['environment_id'])}
