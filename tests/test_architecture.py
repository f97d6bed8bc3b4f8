"""Which folder may import which."""

import ast
import pathlib
import sys

import pytest

from tests.agents.subprocesses import run_python

ROOT = pathlib.Path(__file__).parent.parent
FORBIDDEN = {
  'agents': {'launchpad', 'reverb', 'tensorflow', 'acme', 'courier', 'nodes', 'programs'}
  | {'launchers', 'environments', 'rlax', 'distrax'},
  'environments': {
    'launchpad',
    'reverb',
    'tensorflow',
    'jax',
    'flax',
    'nodes',
    'programs',
    'agents',
  },
  'nodes': {'programs', 'launchers', 'rlax', 'distrax'},
  'launchers': {'jax', 'reverb', 'tensorflow', 'agents', 'programs'},
  'programs': {'jax', 'reverb', 'tensorflow', 'flax', 'optax'},
  'rundir': {'launchpad', 'jax', 'flax', 'reverb', 'tensorflow', 'acme', 'courier'}
  | {'agents', 'environments', 'launchers', 'nodes', 'programs'},
  'sweeps': {'jax', 'reverb', 'tensorflow', 'flax', 'optax', 'agents', 'nodes', 'benchmarks'},
  'viewing': {'launchpad', 'reverb', 'tensorflow', 'programs'},
}


def _imports(path):
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      yield from (alias.name.split('.')[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module.split('.')[0]


def test_courier_imports_the_standard_library_only_and_numpy_for_arrays():
  files = list((ROOT / 'courier').rglob('*.py'))
  assert files
  for path in files:
    allowed = {'courier', 'numpy'} if path.name in ('batching.py', 'data.py') else {'courier'}
    assert set(_imports(path)) <= allowed | sys.stdlib_module_names, path


@pytest.mark.parametrize('folder', FORBIDDEN)
def test_imports_point_one_way(folder):
  files = list((ROOT / folder).rglob('*.py'))
  assert files
  for path in files:
    assert not FORBIDDEN[folder] & set(_imports(path)), path
    assert folder == 'viewing' or 'viewing' not in _imports(path), path
    assert folder == 'sweeps' or 'sweeps' not in _imports(path), path


def test_launchers_import_only_the_lifecycle_of_nodes():
  for path in (ROOT / 'launchers').rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.ImportFrom) and node.module.split('.')[0] == 'nodes':
        module = node.module.partition('.')[2]
        names = {f'{module}.{alias.name}' for alias in node.names}
        names |= {module} if module != 'runtime' else set()
        modules = ('activity', 'lifecycle', 'listening', 'network_namespace', 'open_files')
        known = {f'runtime.{m}' for m in modules}
        assert all(name in known or name.rpartition('.')[0] in known for name in names), path


# The folders that each folder of nodes/ may import.
ROOMS = {
  'runtime': set(),
  'replay_server': {'runtime'},
  'gossip': {'runtime'},
  'evolution': {'runtime'},
  'population': {'runtime', 'learning'},
  'unrolls': {'runtime'},
  'inference': {'runtime', 'unrolls'},
  'learning': {'runtime', 'unrolls'},
  'evaluation': {'runtime', 'inference', 'learning'},
}


@pytest.mark.parametrize('room', ROOMS)
def test_a_folder_of_nodes_imports_no_node_and_few_other_folders(room):
  files = list((ROOT / 'nodes' / room).rglob('*.py'))
  assert len(files) > 1
  for path in files:
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.ImportFrom) and node.module.split('.')[0] == 'nodes':
        packages = node.module.split('.')[1:] or [alias.name for alias in node.names]
        assert packages[0] in ROOMS[room] | {room}, (path, node.module)


def test_no_node_imports_reverb_or_grpc_and_only_lifecycle_imports_launchpad():
  files = list((ROOT / 'nodes').rglob('*.py'))
  assert {p.name for p in files if 'launchpad' in _imports(p)} == {'lifecycle.py'}
  assert not [p for p in files if {'reverb', 'grpc', 'google'} & set(_imports(p))]


@pytest.mark.slow
@pytest.mark.parametrize(
  'modules, heavy',
  [
    (
      'nodes.actor, nodes.evaluator, nodes.evaluation.remote, environments.catch, environments.video',
      ['jax', 'tensorflow', 'reverb', 'pandas'],
    ),
    (
      'launch, programs.sebulba, programs.r2d2, programs.muzero, programs.anakin, programs.impala, '
      'programs.gala, programs.gala_sebulba, programs.intrinsic_rewards, programs.evolution, '
      'programs.offline, programs.population, programs.population_sebulba',
      ['jax', 'tensorflow', 'reverb', 'flax', 'gymnax'],
    ),
    (
      'nodes.anakin, nodes.evaluation.compiled, nodes.evolver, nodes.evolution_worker',
      ['tensorflow', 'reverb', 'pandas'],
    ),
    ('watch', ['jax', 'tensorflow', 'reverb', 'matplotlib']),
    ('sweep, sweeps.seeds', ['jax', 'tensorflow', 'reverb', 'matplotlib', 'optuna']),
    ('evaluate, viewing.evaluation, environments.video', ['tensorflow', 'reverb', 'pandas']),
    # The actors and the evaluator that act themselves know JAX.
    (
      'nodes.impala_actor, nodes.evaluation.fetched, nodes.learner, nodes.relabeller',
      ['tensorflow', 'reverb', 'grpc', 'pandas'],
    ),
    ('nodes.replay_loader', ['tensorflow', 'reverb', 'grpc', 'pandas']),
    ('nodes.replay', ['jax', 'tensorflow', 'pandas']),
    ('nodes.monitor', ['jax', 'tensorflow', 'matplotlib']),
    (
      'nodes.inference_node, nodes.unrolls.reader, nodes.unrolls.writer',
      ['tensorflow', 'reverb', 'grpc'],
    ),
  ],
)
def test_processes_stay_thin(modules, heavy):
  loaded = run_python('-c', f'import sys, {modules}; print(*sys.modules)').split()
  assert not set(heavy) & set(loaded)


def test_the_launcher_imports_nothing_that_a_users_program_only_names():
  code = """
import sys
from agents.options import make
from programs import check, registry
from programs.options import configs
program = registry.load('examples/mine.py:make_program')
agent = 'examples/tempered.py:Tempered'
config = configs.resolve(program, {'run_dir': 'x', 'agent': agent, 'hottest': 2.0})
check.check(program.make_program(config), program.placement(config))
program.environments.check(config.run.env)
print(*sys.modules)
"""
  loaded = run_python('-c', code).split()
  assert any(name.startswith('mine_') for name in loaded)
  assert not {'jax', 'flax', 'tensorflow', 'reverb'} & set(loaded)
  assert not any(name.startswith(('tempered_', 'histogram_')) for name in loaded)


def _is_seed(node):
  name = getattr(node, 'attr', getattr(node, 'id', ''))
  return name == 'seed' or name.endswith('_seed')


@pytest.mark.parametrize('folder', ['agents', 'nodes', 'programs', 'viewing'])
def test_keys_are_made_in_one_place_and_seeds_without_arithmetic(folder):
  # The script of an exported policy runs where this repository is not.
  for path in {*(ROOT / folder).rglob('*.py')} - {ROOT / 'viewing' / 'play.py'}:
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.BinOp):
        assert not _is_seed(node.left) and not _is_seed(node.right), (path, node.lineno)
      if isinstance(node, ast.Call):
        constant = any(isinstance(argument, ast.Constant) for argument in node.args)
        if ast.unparse(node.func) == 'jax.random.key':
          assert constant, (path, node.lineno)  # Where only its shape matters.
        elif ast.unparse(node.func) == 'jax.random.fold_in':
          assert not constant, (path, node.lineno)  # It may be what `split` returns elsewhere.


def test_only_the_table_names_the_engines():
  engines = {'local', 'ray', 'slurm', 'k8s', 'skypilot'}
  for path in (ROOT / 'launchers').rglob('*.py'):
    folder = path.relative_to(ROOT / 'launchers').parts[0]
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
      elif isinstance(node, ast.ImportFrom):
        names = [f'{node.module}.{alias.name}' for alias in node.names]
      else:
        continue
      known = {n.split('.')[1] for n in names if n.startswith('launchers.')} & engines
      # The second begins before the first has been read.
      assert path.name in ('engines.py', 'early_nodes.py') or known <= {folder}, path


def test_launch_names_no_engine():
  text = (ROOT / 'launch.py').read_text()
  assert not [
    name for name in ('ray', 'slurm', 'k8s', 'skypilot', 'local') if f'launchers.{name}' in text
  ]
