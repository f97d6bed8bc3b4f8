"""Programs in a user's own file, outside of this repository."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax import serialization

import evaluate
from agents.options import flatten, make, replace
from agents.seeding import Seed
from agents.types import FIRST, LAST, MID, Timestep, Unroll
from benchmarks.running import processes
from environments import registry as environments
from environments import user_file
from launchers import binding
from nodes.learning.options import TransformOptions
from nodes.unrolls.table_names import BatchPart
from programs import check, estimates, registry
from programs.options import configs
from programs.options.rule import Rule
from rundir import audit, checkpoints, run_directory
from tests.launchers.contract import runs
from tests.programs_under_test import DONE, ENDLESS, ROOT, SMALL, launch, log_text, run_main
from tests.waiting import DEADLINE, wait_until

EXAMPLES = sorted((ROOT / 'examples').glob('*.py'))
PROGRAM, AGENT, TORSO = 'mine.py:make_program', 'tempered.py:Tempered', 'fourier.py:wide'


@pytest.fixture
def mine(tmp_path):
  """A copy of the examples outside of the repository."""
  for path in EXAMPLES:
    shutil.copy(path, tmp_path)
  return tmp_path


# Its constructor starts a process and does not return.
STUCK = """
import os, subprocess, time

def make(task, num_envs, seed):
  with open('pid', 'w') as f:
    f.write(f'{subprocess.Popen(["sleep", "1000"]).pid}\\n')
  time.sleep(1000)
"""


@pytest.mark.slow
@pytest.mark.parametrize('number, code', [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_launch_that_is_stopped_while_it_plans_leaves_no_process(tmp_path, number, code):
  (tmp_path / 'stuck.py').write_text(STUCK)
  process = subprocess.Popen(
    [sys.executable, ROOT / 'launch.py', f'--env={tmp_path}/stuck.py:make'],
    cwd=tmp_path,
    stderr=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )
  pid_file = tmp_path / 'pid'
  wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith('\n'))
  process.send_signal(number)
  output, errors = process.communicate(timeout=DEADLINE)
  assert process.returncode == code and (output, errors) == (b'', b'')
  wait_until(lambda: not runs(int(pid_file.read_text())))
  assert sorted(path.name for path in tmp_path.iterdir()) == ['pid', 'stuck.py']


# Its constructor does to its process what a simulator may do.
SPOILING = """
import os, signal
from environments.catch import Catch

def make(task, num_envs, seed):
  if task == 'exit':
    os._exit(0)
  os.chdir('/')
  os.environ['SPOILT'] = 'yes'
  signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
  return Catch(num_envs, seed)
"""


def test_what_an_environment_does_to_its_process_does_not_reach_launch_py(
  tmp_path, monkeypatch, capsys
):
  (tmp_path / 'spoiling.py').write_text(SPOILING)
  (tmp_path / 'used').mkdir()
  (tmp_path / 'used' / 'file').touch()
  monkeypatch.chdir(tmp_path)
  assert run_main('--dry_run', '--env=spoiling.py:make', '--run_dir=used') == 2
  assert capsys.readouterr().err.startswith(f'error: --run_dir={tmp_path}/used is not empty')
  assert os.getcwd() == str(tmp_path) and 'SPOILT' not in os.environ
  assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_environment_that_ends_its_process_is_refused(tmp_path):
  (tmp_path / 'spoiling.py').write_text(SPOILING)
  process = launch('--dry_run', f'--env={tmp_path}/spoiling.py:make:exit')
  name = f'--env={tmp_path}/spoiling.py:make:exit'
  said = f'error: {name}: trying it ended its process with exit code 0.\n'
  assert (process.returncode, process.stdout, process.stderr) == (2, '', said)


def test_a_program_that_changes_the_directory_on_import_moves_no_path_of_the_command(tmp_path):
  moving = tmp_path / 'moving.py'
  moving.write_text(f"import os\nos.chdir('/')\n{(ROOT / 'examples' / 'primes.py').read_text()}")
  process = launch('--dry_run', f'--program={moving}:make_program', '--run_dir=docs')
  assert process.returncode == 2
  assert process.stderr.startswith(f'error: --run_dir={ROOT}/docs is not empty')


@pytest.mark.slow
def test_the_example_of_an_agent_acts_at_the_temperature_that_it_stores(mine):
  program = registry.load(f'{mine}/{PROGRAM}')
  config = configs.resolve(program, {'agent': f'{mine}/{AGENT}', 'hottest': 8.0})
  spec = environments.make_spec(config.run.env)
  agent = program.make_agent(config)(spec.observations, spec.actions)
  temperatures = agent.exploration(4)
  np.testing.assert_allclose(temperatures, [1, 2, 4, 8], rtol=1e-6)

  params = jax.jit(agent.init)(jax.random.key(0)).params
  params['params']['head']['logits']['bias'] = np.array([0.0, 3.0], np.float32)
  ones, observation = np.ones(5, np.float32), np.zeros((5, 8), np.float32)
  timestep = Timestep(np.zeros(5, np.uint8), 0 * ones, ones, observation)
  keys = jax.random.split(jax.random.key(1), 5)
  acted = agent.act(params, {}, timestep, np.append(temperatures, np.float32(0)), keys)
  logits = acted.extras['behaviour_logits']
  differences = logits[:, 1] - logits[:, 0]
  np.testing.assert_allclose(differences[:4], 3 / temperatures, rtol=1e-5)
  assert differences[4] > 1e5 and acted.action[4] == 1


def _assert_recorded(mine):
  """Asserts that the run of `mine` records where its program and the parts of it are, and plays."""
  record = json.loads((mine / 'run' / 'config.json').read_text())
  assert record['program'] == f'{mine}/{PROGRAM}'
  assert record['config']['env'] == f'{mine}/corridor.py:make'
  assert record['config']['agent'] == f'{mine}/{AGENT}' and record['given']['hottest'] == 2.0
  assert record['config']['torso'] == f'{mine}/{TORSO}'
  assert evaluate.main([str(mine / 'run'), '--episodes=4']) == 0


@pytest.mark.nightly  # The next test runs them until it stops them.
@pytest.mark.parametrize('launch_type', ['local_mt', 'local_mp'])
def test_the_examples_run_to_their_end_from_another_directory(train, mine, launch_type):
  run_dir = mine / 'run'
  process = train(
    *SMALL,
    f'--program={mine}/{PROGRAM}',
    f'--agent={mine}/{AGENT}',
    '--hottest=2',
    '--normalize_rewards',
    f'--torso={mine}/{TORSO}',
    f'--lp_launch_type={launch_type}',
    f'--run_dir={run_dir}',
  )
  assert process.returncode == 0, process.stderr
  assert DONE.fullmatch(process.stdout.splitlines()[-1])
  assert processes(str(run_dir)) == []
  _assert_recorded(mine)
  params = serialization.msgpack_restore((run_dir / 'params' / 'final.msgpack').read_bytes())
  assert params['params']['torso']['Dense_0']['kernel'].shape == (8, 256)
  if launch_type == 'local_mp':
    assert 'Traceback' not in log_text(run_dir)


def _reported(run_dir, node, column):
  """Returns the last report of a node if it has counted something in a column; else None."""
  path = run_dir / 'logs' / f'{node}.csv'
  rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
  return rows[-1] if rows and float(rows[-1][column] or 0) > 0 else None


def test_your_own_node_sees_unrolls_and_publishes_them(start_program, mine):
  # How many a short run shows depends on how quick it is.
  flags = f'--program={mine}/{PROGRAM}', f'--agent={mine}/{AGENT}', f'--torso={mine}/{TORSO}'
  program = start_program(*flags, '--hottest=2', ENDLESS)
  last = program.wait_until(
    lambda: _reported(mine / 'run', 'histogram-0', 'rows'), 'the histogram has seen unrolls'
  )
  assert float(last['action_0']) + float(last['action_1']) == pytest.approx(1.0)
  program.wait_for_progress()
  program.launcher.send_signal(signal.SIGINT)
  code, _, errors = program.end()
  assert code == 130 and 'Traceback' not in errors + log_text(mine / 'run')
  assert processes(program.run_dir) == []
  _assert_recorded(mine)


def test_a_second_evaluator_has_a_log_of_its_own_and_the_run_waits_for_both(tmp_path):
  process = launch(
    f'--program={ROOT}/examples/two_evaluators.py:make_program',
    '--num_steps=20000',
    '--eval_envs=2',
    '--eval_episodes=4',
    f'--run_dir={tmp_path}/run',
  )
  assert process.returncode == 0, process.stderr
  summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  assert summary['evaluator_episodes'] == 4
  for node, episodes in (('evaluator-0', 4), ('long_episodes-0', 20)):
    last = _reported(tmp_path / 'run', node, 'evaluator_episodes')
    assert float(last['evaluator_episodes']) == episodes
    assert float(last['learner_steps']) == summary['learner_steps']


@pytest.mark.nightly  # The next test plans its graph.
def test_the_example_of_two_tables_learns_from_new_unrolls_once_and_from_old_ones(train, mine):
  flags = f'--program={mine}/replayed.py:make_program', '--replayed=2', '--audit'
  process = train(*SMALL, *flags, f'--run_dir={mine / "run"}')
  assert process.returncode == 0, process.stderr
  trained = audit.read(str(mine / 'run'), audit.TRAINED)[:, 0].reshape(-1, 4)  # Batches of SMALL.
  new, replayed = trained[:, :2].ravel().tolist(), trained[:, 2:].ravel().tolist()
  assert len(new) == len(set(new)) and set(new) & set(replayed)
  produced = audit.read(str(mine / 'run'), audit.PRODUCED)[:, 0].tolist()
  assert {*new, *replayed} <= set(produced)


def test_the_example_of_two_tables_counts_new_unrolls_and_needs_some(mine):
  program = registry.load(f'{mine}/replayed.py:make_program')
  config = make(program.Config, num_steps=100_000, batch_size=16, replayed=12).resolve()
  config.validate()
  assert {'actor', 'replay', 'inference_learner'} <= program.make_program(config).groups.keys()
  assert estimates.expected(config).updates == config.playing.unrolls(100_000) // 4
  with pytest.raises(ValueError, match='--replayed=16 must be below --batch_size=16'):
    replace(config, replayed=16).validate()


def test_the_example_of_a_node_between_tables_changes_what_the_learner_learns_from(
  start_program, mine
):
  program = start_program(f'--program={mine}/curious.py:make_program', '--novelty=0.5', ENDLESS)
  last = program.wait_until(
    lambda: _reported(mine / 'run', 'novelty-0', 'unrolls_written'), 'the node has written unrolls'
  )
  assert float(last['seen']) > 10
  program.wait_for_progress()  # The learner has no other unrolls than those that the node has written.
  program.launcher.send_signal(signal.SIGINT)
  code, _, errors = program.end()
  assert code == 130 and 'Traceback' not in errors + log_text(mine / 'run')
  assert processes(program.run_dir) == []


def test_the_example_of_a_node_between_tables_rewards_what_is_rare(mine):
  options = TransformOptions('novelty/0', (BatchPart('played', 1),), 'unrolls', 1.0, Seed(0))
  novelty = user_file.named(f'{mine}/novelty.py:Novelty').load()
  node = novelty(None, None, None, [], None, options, scale=1.0)
  observation = np.array([[[0], [1], [1], [1], [2]]])
  step_type = np.array([[MID, MID, LAST, FIRST, MID]])
  timestep = Timestep(step_type, np.full((1, 5), 10.0), np.ones((1, 5)), observation)
  unrolls = Unroll(timestep, None, {}, None, None, None)
  reward = node.transform(unrolls, 0).timestep.reward
  np.testing.assert_allclose(reward, [[10, 11, 10 + 2**-0.5, 10, 11]])
  # The second unroll begins with the last row of the first, which has been counted.
  reward = node.transform(unrolls, 1).timestep.reward
  np.testing.assert_allclose(reward, [[10, 10.5, 10 + 5**-0.5, 10, 10 + 2**-0.5]])


@pytest.mark.nightly
def test_a_run_of_your_own_program_is_resumed(start_program, train, mine):
  agent = f'--agent={mine}/{AGENT}'
  program = start_program(f'--program={mine}/{PROGRAM}', agent, '--hottest=2', ENDLESS)
  program.wait_for_progress()
  program.launcher.send_signal(signal.SIGINT)
  assert program.end()[0] == 130
  run_dir = program.run_dir
  steps = checkpoints.newest(checkpoints.directory(run_dir)).counts['actor_steps'] + 2000
  process = train(f'--resume={run_dir}', '--hottest', '2', f'--num_steps={steps}')
  assert process.returncode == 0, process.stderr
  assert int(DONE.fullmatch(process.stdout.splitlines()[-1]).group(2)) >= steps


def test_a_run_is_not_resumed_with_another_option_or_without_its_file(mine):
  run_dir, name = str(mine / 'run'), f'{mine}/{PROGRAM}'
  config = configs.resolve(registry.load(name), {'agent': f'{mine}/{AGENT}'})
  os.mkdir(run_dir)
  run_directory.write_record(run_dir, name, {}, flatten(config))
  process = launch(f'--resume={run_dir}', '--hottest=3')
  assert process.returncode == 2 and '--hottest=3.0 cannot change' in process.stderr
  (mine / 'mine.py').unlink()
  process = launch(f'--resume={run_dir}')
  assert process.returncode == 2
  assert process.stderr.startswith(f'error: --resume={run_dir} needs its program: {name}: ')
  assert 'No such file' in process.stderr and process.stderr.count('\n') == 1


@pytest.mark.slow
def test_nodes_need_no_file_of_the_user_where_they_run(mine):
  module = registry.load(f'{mine}/{PROGRAM}')
  own = {'agent': f'{mine}/{AGENT}', 'torso': f'{mine}/{TORSO}'}
  config = configs.resolve(module, {'run_dir': str(mine / 'run'), **own})
  program = module.make_program(config)
  payloads = mine / 'nodes'
  payloads.mkdir()
  tasks = binding.prepare(
    program, lambda label, i, count: ['localhost:1'] * count, _no_stop, str(payloads)
  )
  for path in EXAMPLES:
    (mine / path.name).unlink()
  code = """
import sys, cloudpickle
for path in sys.argv[1:]:
  job = cloudpickle.load(open(path, 'rb'))  # As the launcher in a Slurm job, which packs it again.
  node = cloudpickle.loads(cloudpickle.dumps(job)).__self__
  arguments = node._args[:2]
  if 'histogram' in path:
    print(node._constructor(None, 2).run)
  elif 'actor' in path:
    environment = arguments[0](3, 1)
    print(environment.reset().observation.shape)
  elif 'inference_learner' in path:
    spec = arguments[1](1, 1).spec()
    agent = arguments[0](spec.observations, spec.actions)
    print(agent.exploration(2), agent.network.body.torso)
"""
  command = [sys.executable, '-c', code, *(task.payload for task in tasks)]
  environment = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
  done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  for word in ('<bound method ActionHistogram.run', '(3, 8)', '[1. 4.]', 'size = 256'):
    assert word in done.stdout


def _no_stop(mark_as_completed=False):
  del mark_as_completed


HEAD = """
import dataclasses
import launchpad as lp
from agents.options import option
from programs import sebulba
from programs.options.common import CommonConfig
"""
GOOD = (
  HEAD
  + """
class Node:
  def run(self):
    print('hello')

@dataclasses.dataclass(frozen=True)
class Config(CommonConfig):
  colour: str = option('green', 'of the node')

def make_program(config):
  program = lp.Program('mine')
  program.add_node(lp.PyClassNode(Node), label='node')
  return program
"""
)


def test_only_the_function_is_needed_and_what_the_file_has_is_used(train, tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(GOOD)
  name = f'{path}:make_program'
  process = launch('--program', name, '--dry_run', '--colour=red')
  assert process.returncode == 0, process.stderr
  assert '1 x PyClassNode(Node)  on a CPU worker' in process.stdout
  process = launch(f'--program={name}', '--help')
  text = ' '.join(process.stdout.split())
  assert '--colour=green of the node' in text
  assert '--num_steps=300000 actor_steps' in text and '--num_actors' not in text
  process = launch(f'--program={name}', '--list_envs')
  assert process.returncode == 0 and 'catch' in process.stdout
  page = process.stdout.split()[-1]
  assert (ROOT / page).read_text().startswith('# Extending')
  path.write_text(GOOD.replace('class Config(CommonConfig)', 'class Other(CommonConfig)'))
  process = train(f'--program={name}', '--num_actors=1', f'--run_dir={tmp_path / "run"}')
  assert process.returncode == 0, process.stderr
  assert 'hello' in (tmp_path / 'run' / 'logs' / 'node-0.log').read_text()


@pytest.mark.parametrize(
  'old, new, words',
  [
    ('def make_program', 'def make_programm', ['no make_program; did you mean']),
    ('  return program', '  return program)', ['unmatched', 'line 19', 'return program)']),
    ('  return program', '  return None', ['must return an lp.Program, not NoneType']),
    ("lp.Program('mine')", 'lp.Program()', ['raised TypeError', 'line 17', 'lp.Program()']),
    ('class Node', 'import nothing_like_it\nclass Node', ['ModuleNotFoundError', 'line 8']),
    ("str = option('green'", 'dict = option(None', ['the option colour', 'default']),
    ('Config(CommonConfig)', 'Config', ['CommonConfig']),
    ('(config)', '()', ['takes no config, but its file defines Config']),
    ('(Node)', "(Node, a=__import__('threading').Lock())", ["argument 'a', of type lock"]),
    ('  return program', '  return program\ndef placement(_):\n  return {}', ['no placement']),
    (
      '  return program',
      '  return program\ndef placement():\n  pass',
      ['calling placement raised'],
    ),
  ],
)
def test_a_mistake_is_reported_in_one_sentence(tmp_path, old, new, words):
  assert old in GOOD
  path = tmp_path / 'mine.py'
  path.write_text(GOOD.replace(old, new))
  name = f'{path}:make_program'
  with pytest.raises(ValueError) as error:
    module = registry.load(name)
    config = module.Config()
    check.check(module.make_program(config), module.placement(config))
  assert '\n' not in str(error.value)
  assert str(error.value).startswith((f'--program={name}', 'node ', 'group '))
  for word in words:
    assert word in str(error.value)


@pytest.mark.parametrize(
  'option, words',
  [
    ({'colours': 'red'}, 'a preset sets colours, which is not an option of the program'),
    ({'colour': 3}, 'a preset sets colour to 3, which is not of type str'),
    ({'num_steps': Rule('a half', lambda config: 0.5)}, '^a preset sets num_steps to 0.5'),
  ],
)
def test_a_mistake_in_presets_is_reported_in_one_sentence(tmp_path, option, words):
  path = tmp_path / 'mine.py'
  path.write_text(GOOD)
  module = registry.load(f'{path}:make_program')
  module.PRESETS = {'catch': option}
  with pytest.raises(ValueError, match=words):
    configs.make_config(module, {})


@pytest.mark.parametrize(
  'old, new', [('colour', 'launcher'), ("colour: str = option('green'", 'seed: bool = option(True')]
)
def test_an_option_that_clashes_with_a_flag_is_rejected(tmp_path, old, new):
  assert old in GOOD
  path = tmp_path / 'mine.py'
  path.write_text(GOOD.replace(old, new))
  process = launch(f'--program={path}:make_program', '--dry_run')
  assert (process.returncode, process.stdout) == (2, '')
  assert process.stderr.count('\n') == 1
  assert f'error: --program={path}:make_program: the option {new.split(":")[0]}' in process.stderr


def test_errors_in_the_graph_are_reported_before_anything_is_written(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(GOOD + 'def placement(config):\n  return {}\n')
  process = launch(f'--program={path}:make_program', f'--run_dir={tmp_path / "run"}')
  assert process.returncode == 2
  assert process.stderr.startswith("error: group 'node' has no placement")
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  'name, words',
  [('/nothing/mine.py:make_program', ['No such file']), ('/nothing/mine.py', ['which function'])],
)
def test_a_missing_program_is_reported(name, words):
  process = launch(f'--program={name}')
  assert process.returncode == 2 and process.stderr.count('\n') == 1
  for word in (f'error: --program={name}', *words):
    assert word in process.stderr


@pytest.mark.slow
def test_kubernetes_gets_programs_that_are_in_the_image_and_no_others(mine, tmp_path):
  flags = ['--launcher=k8s', '--image=x', f'--output={tmp_path / "out"}']
  process = launch(f'--program={mine}/{PROGRAM}', *flags)
  assert process.returncode == 2 and process.stderr.count('\n') == 1
  assert f'--program={mine}/{PROGRAM} is not in a directory of {ROOT}' in process.stderr
  process = launch(f'--program={ROOT}/examples/{PROGRAM}', *flags)
  assert process.returncode == 0, process.stderr
  manifest = (tmp_path / 'out' / 'jobset.yaml').read_text()
  assert f'--program=examples/{PROGRAM}' in manifest and str(ROOT) not in manifest
