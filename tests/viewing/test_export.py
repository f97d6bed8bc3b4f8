"""Exported policies: what runs them is JAX, NumPy and flatbuffers alone."""

import json
import os
import pathlib
import subprocess
import sys

import dm_env.specs
import flax.linen as nn
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import evaluate
from agents.muzero.agent import MuZero
from agents.muzero.config import MuZeroConfig
from agents.options import flatten, make
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.types import FIRST, LAST, MID, Timestep
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from environments import registry
from nodes.learning import serialisation
from programs import sebulba
from rundir import final_params, run_directory
from viewing import export

ROOT = pathlib.Path(__file__).parent.parent.parent
IMAGE, PIXELS = dm_env.specs.Array((36, 36), np.uint8), dm_env.specs.Array((6, 6, 2), np.float32)
LABELS = dm_env.specs.DiscreteArray(3)
# step_type of three environments over 30 rows: the first row resets what the core state began with.
STEPS = np.tile(
  np.array(
    [
      [FIRST, MID, MID, LAST, FIRST, LAST],
      [FIRST, LAST, FIRST, MID, MID, LAST],
      [FIRST, MID, MID, MID, MID, LAST],
    ]
  ).T,
  (5, 1),
)


def _run(run_dir, **options):
  """Makes the directory of a run of Sebulba with new parameters; returns agent and parameters."""
  run_dir.mkdir()
  config = make(sebulba.Config, **options).resolve()
  run_directory.write_record(str(run_dir), 'sebulba', options, flatten(config))
  spec = registry.make_spec(config.run.env)
  agent = sebulba.make_agent(config)(spec.observations, spec.actions)
  params = jax.device_get(jax.jit(agent.init)(jax.random.key(0)).params)
  # The logits of a new policy hardly depend on its inputs.
  logits = params['params']['head']['logits']
  logits['kernel'] = 100 * logits['kernel']
  final_params.save(str(run_dir), serialisation.serialise(params))
  return agent, params


def _rows(shape, dtype=np.float32):
  """Returns timesteps [30, 3, ...]."""
  rng = np.random.default_rng(0)
  return Timestep(
    step_type=STEPS,
    reward=rng.normal(size=STEPS.shape).astype(np.float32),
    discount=np.ones(STEPS.shape, np.float32),
    observation=rng.normal(scale=2, size=(*STEPS.shape, *shape)).astype(dtype),
  )


def _acted(agent, params, rows, seed, exploration, carries=True):
  """Returns actions [30, 3, ...] by the definition of `Agent.act`."""
  keys = jax.random.split(jax.random.key(seed), 3)
  core_state, actions = agent.initial_core_state(3), []
  explore, act = jnp.full(3, exploration, jnp.float32), jax.jit(agent.act)
  for count in range(len(STEPS)):
    now = jnp.stack([jax.random.fold_in(key, count) for key in keys])
    row = jax.tree.map(lambda x, count=count: x[count], rows)
    output = act(params, core_state, row, explore, now)
    core_state = output.core_state if carries else core_state
    actions.append(np.asarray(output.action))
  return np.stack(actions)


@pytest.mark.slow
@pytest.mark.parametrize(
  'options, arguments',
  [
    ({'mlp_sizes': (16,)}, (0, 0)),
    ({'mlp_sizes': (16,), 'core': 'lstm', 'core_size': 8, 'frame_stack': 2}, (3, 0.5)),
  ],
)
def test_the_script_acts_as_the_agent_without_this_repository(tmp_path, capsys, options, arguments):
  agent, params = _run(tmp_path / 'run', **options)
  folder = tmp_path / 'policy'
  assert evaluate.main([str(tmp_path / 'run'), '--episodes=2', f'--export={folder}']) == 0
  assert f'{folder}, for batches of any size' in capsys.readouterr().out
  rows = _rows((10, 5))
  np.savez(tmp_path / 'rows.npz', **rows._asdict())
  process = subprocess.run(
    [sys.executable, folder / 'play.py', tmp_path / 'rows.npz', *map(str, arguments)],
    cwd=tmp_path,
    env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'} | {'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
  )
  assert process.returncode == 0, process.stderr
  actions = [json.loads(line) for line in process.stdout.splitlines()]
  assert actions == _acted(agent, params, rows, *arguments).tolist()
  # The rows tell apart what could be mistaken.
  seed, exploration = arguments
  greedy = _acted(agent, params, rows, seed, 0)
  assert len(np.unique(greedy)) > 1
  if exploration:
    sampled = _acted(agent, params, rows, seed, 1)
    assert (sampled != greedy).any()
    assert (sampled != _acted(agent, params, rows, seed + 1, 1)).any()
    assert (sampled != _acted(agent, params, rows, seed, 1, carries=False)).any()

  specs = json.loads((folder / 'policy.json').read_text())
  assert specs['observation'] == {'shape': [10, 5], 'dtype': 'float32'}
  assert specs['action'] == {'shape': [], 'dtype': 'int32', 'num_values': 3}
  names = ['frames', 'lstm/0', 'lstm/1', 'prev_action'] if options.get('core') else []
  assert [part['name'] for part in specs['core_state']] == names
  assert (specs['batch_size'], specs['exploration']) == (None, 0.0)
  assert specs['platforms'] == ['cpu', 'cuda', 'tpu']
  assert specs['protocol']['env'] == 'catch' and specs['score']['episodes'] == 2


def test_the_script_imports_nothing_else():
  lines = (ROOT / 'viewing' / 'play.py').read_text().splitlines()
  imported = {
    line.split()[1].split('.')[0] for line in lines if line.startswith(('import', 'from'))
  }
  assert imported == {'json', 'pathlib', 'sys', 'typing', 'jax', 'numpy'}


class Counted(nn.Module):
  """Needs the number of its rows when it is traced."""

  @nn.compact
  def __call__(self, x):
    layer = nn.Dense(4)
    return jnp.concatenate([layer(x[i].reshape(1, -1)) for i in range(len(x))])


def _export(tmp_path, agent, observation_spec):
  """Exports new parameters; returns the artefact and its specs."""
  params = jax.tree.map(
    lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(agent.init, jax.random.key(0)).params
  )
  folder = tmp_path / 'policy'
  export.check_directory(str(folder))
  export.write(str(folder), agent, params, observation_spec, LABELS, 3, {})
  content = (folder / 'policy.bin').read_bytes()
  specs = json.loads((folder / 'policy.json').read_text())
  return jax.export.deserialize(bytearray(content)), specs


@pytest.mark.slow
@pytest.mark.parametrize(
  'agent, spec',
  [
    (VTrace(VTraceConfig(hidden_size=4), PIXELS, LABELS), PIXELS),
    (VTrace(VTraceConfig(torso='impala', hidden_size=4, core='lru'), IMAGE, LABELS), IMAGE),
    (R2D2(R2D2Config(frame_stack=4, hidden_size=4), IMAGE, LABELS), IMAGE),
    (
      MuZero(MuZeroConfig(num_simulations=2, model_channels=2, model_blocks=1), PIXELS, LABELS),
      PIXELS,
    ),
    (MuZero(MuZeroConfig(num_simulations=2, torso='minatar'), PIXELS, LABELS), PIXELS),
  ],
  ids=['minatar', 'impala', 'r2d2', 'muzero', 'muzero-torso'],
)
def test_convolutions_and_searches_take_batches_of_any_size(tmp_path, agent, spec):
  exported, specs = _export(tmp_path, agent, spec)
  assert specs['batch_size'] is None
  (action, *_) = exported.out_avals
  assert len(action.shape) == 1 and str(action.shape[0]) == 'b'


def test_the_leaves_of_a_nest_are_inputs_by_name(tmp_path):
  spec = {'x': PIXELS, 'a': (LABELS,), 'action_mask': dm_env.specs.Array((3,), bool)}
  agent = VTrace(VTraceConfig(mlp_sizes=(4,), hidden_size=4), spec, LABELS)
  exported, specs = _export(tmp_path, agent, spec)
  names = ['observation/a/0', 'observation/action_mask', 'observation/x']
  assert list(specs['observation']) == names
  seen = [np.zeros((2, *leaf['shape']), leaf['dtype']) for leaf in specs['observation'].values()]
  seen[1][:, 2] = True
  ones, keys = np.ones(2, np.float32), np.zeros((2, 2), np.uint32)
  action, _ = exported.call(
    [], np.zeros(2, np.uint8), 0 * ones, ones, seen, ones, keys, np.int32(0)
  )
  assert action.tolist() == [2, 2]


def test_an_agent_that_needs_its_batch_size_states_it(tmp_path):
  agent = VTrace(VTraceConfig(torso=Counted), PIXELS, LABELS)
  exported, specs = _export(tmp_path, agent, PIXELS)
  assert specs['batch_size'] == 3 and 'TypeError: ' in specs['batch_size_reason']
  assert exported.out_avals[0].shape == (3,)


def test_a_directory_with_files_is_rejected_before_anything_is_played(tmp_path, capsys):
  _run(tmp_path / 'run', mlp_sizes=(4,))
  (tmp_path / 'file').write_text('mine')
  for path, words in ((tmp_path, 'is not empty'), ('/proc/nothing', 'cannot be written')):
    assert evaluate.main([str(tmp_path / 'run'), f'--export={path}']) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f'error: --export={path} {words}') and not captured.out
