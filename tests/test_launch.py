"""launch.py as a user runs it: real processes, with a deadline."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import psutil
import pytest

from benchmarks.running import RunningProgram, processes
from nodes import audit, checkpoints
from tests.launchers.local import strangers

ROOT = pathlib.Path(__file__).parent.parent
DONE = re.compile(
  r'done: evaluator_return=(\S+) actor_steps=(\d+) environment_frames=(\d+) learner_steps=(\d+) '
  r'run_dir=(\S+)'
)
# Small and quick: one actor, a few updates.
SMALL = (
  '--num_steps=2000',
  '--num_actors=1',
  '--envs_per_actor=8',
  '--batch_size=4',
  '--eval_episodes=10',
)
APART = ('--num_actors=2', '--envs_per_actor=4', '--inference_nodes=2')
SMALL_REPLAY = ('--burn_in=4', '--unroll_length=10', '--min_replay_size=16', '--replay_size=64')


def launch(*flags, timeout=150):
  """Runs launch.py; returns the finished process."""
  return subprocess.run(
    [sys.executable, 'launch.py', *flags],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=timeout,
    stdin=subprocess.DEVNULL,
    # A proxy that is out of reach is none for the nodes.
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'http_proxy': 'http://127.0.0.1:9'},
  )


@pytest.mark.parametrize(
  'program, options, learner',
  [
    ('sebulba', (), 'inference_learner-0'),
    ('r2d2', (*SMALL_REPLAY, '--num_replay_shards=2'), 'inference_learner-0'),
    ('sebulba', APART, 'learner-0'),
    ('impala', (), 'learner-0'),
  ],
)
@pytest.mark.parametrize(
  'launch_type',
  [
    'local_mp',
    'local_mt',
    pytest.param('test_mt', marks=pytest.mark.nightly),
    # Launchpad's own process entry takes the interpreter down, which Courier now and then aborts.
    pytest.param('test_mp', marks=pytest.mark.nightly),
  ],
)
def test_a_program_runs_to_its_end_under_every_launch_type(
  tmp_path, program, options, learner, launch_type
):
  run_dir, apart = tmp_path / 'run', options == APART
  process = launch(
    *SMALL,
    *options,
    f'--program={program}',
    f'--lp_launch_type={launch_type}',
    f'--run_dir={run_dir}',
  )
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  evaluator_return, actor_steps, frames, learner_steps, said_dir = done.groups()
  assert -1 <= float(evaluator_return) <= 1
  assert int(actor_steps) >= 2000 and actor_steps == frames
  # 2000 steps of 8 environments are 12 unrolls of each, less what was under way at the end.
  assert int(learner_steps) >= 20
  assert said_dir == str(run_dir)
  assert processes(str(run_dir)) == []

  config = json.loads((run_dir / 'config.json').read_text())
  assert (config['program'], config['config']['num_steps']) == (program, 2000)
  assert config['versions']['jax'] == '0.6.2'
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] == int(learner_steps)
  assert (run_dir / 'learning_curve.png').read_bytes().startswith(b'\x89PNG')
  asker, number = ('inference', 2) if apart else ('actor', 1)
  assert f'{asker} -->|{number}| {learner[:-2]}' in (run_dir / 'graph.md').read_text()
  assert re.search(f'{number} x (Acting)?Actor', (run_dir / 'graph.svg').read_text())
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000
  assert list((run_dir / 'tensorboard').iterdir())
  with open(run_dir / 'logs' / 'evaluator-0.csv') as f:
    last = list(csv.DictReader(f))[-1]
  assert float(last['evaluator_return']) == pytest.approx(float(evaluator_return), abs=1e-3)
  if launch_type == 'local_mp':
    logs = {p.stem for p in (run_dir / 'logs').glob('*.log')}
    expected = {'actor-0', 'evaluator-0', learner, 'monitor-0', 'replay-0'}
    if apart:
      expected |= {'actor-1', 'inference-0', 'inference-1'}
    assert logs - {'replay-1'} == expected
    assert 'Traceback' not in ''.join(p.read_text() for p in (run_dir / 'logs').glob('*.log'))


def test_continuous_actions_go_all_the_way_round(tmp_path):
  """By Courier, through replay and into the core; the evaluator's pendulum is cut after 200 steps."""
  run_dir = tmp_path / 'run'
  process = launch(
    *SMALL,
    '--env=gymnasium:Pendulum-v1',
    '--core=lstm',
    '--lstm_size=8',
    '--audit',
    f'--run_dir={run_dir}',
  )
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  assert -2000 < float(done.group(1)) < 0  # 200 steps with a reward from -16.3 to 0.
  assert int(done.group(2)) >= 2000 and int(done.group(4)) >= 20
  for name in (audit.PRODUCED, audit.TRAINED):
    assert len(audit.read(str(run_dir), name)) >= 80  # Unrolls: four in each update.
  assert 'Traceback' not in ''.join(p.read_text() for p in (run_dir / 'logs').glob('*.log'))


@pytest.mark.parametrize(
  'launch_type', ['local_mp', pytest.param('local_mt', marks=pytest.mark.nightly)]
)
def test_anakin_runs_to_its_end_and_on(tmp_path, launch_type):
  run_dir = tmp_path / 'run'
  flags = ['--program=anakin', '--env=gymnax:Catch-bsuite', '--num_envs=8', '--updates_per_call=2']
  process = launch(
    *flags,
    '--num_steps=2000',
    '--mlp_sizes=16',
    '--eval_episodes=10',
    f'--lp_launch_type={launch_type}',
    f'--run_dir={run_dir}',
    timeout=240,
  )
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  evaluator_return, actor_steps, frames, learner_steps, _ = done.groups()
  assert -1 <= float(evaluator_return) <= 1
  assert 2000 <= int(actor_steps) < 2000 + 2 * 8 * 20 and actor_steps == frames
  assert int(learner_steps) == 14  # Calls of 2 x 8 x 20 rows, a tenth of them no decisions.
  assert processes(str(run_dir)) == []
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] == 14
  assert (run_dir / 'learning_curve.png').read_bytes().startswith(b'\x89PNG')
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000
  if launch_type == 'local_mt':
    return
  logs = {p.stem for p in (run_dir / 'logs').glob('*.log')}
  assert logs == {'anakin-0', 'evaluator-0', 'monitor-0'}
  assert 'Traceback' not in ''.join(p.read_text() for p in (run_dir / 'logs').glob('*.log'))

  for name in ('summary.json', 'final_evaluation.json'):  # As if it had been stopped before them.
    (run_dir / name).unlink()
  process = launch(f'--resume={run_dir}')
  assert process.returncode == 0, process.stderr
  assert DONE.fullmatch(process.stdout.splitlines()[-1]).groups()[1:] == done.groups()[1:]

  process = launch(f'--resume={run_dir}', '--num_steps=2500')
  assert process.returncode == 0, process.stderr
  assert int(DONE.fullmatch(process.stdout.splitlines()[-1]).group(4)) == 18


@pytest.fixture
def running(tmp_path):
  """A program that trains for ever; returns it and the processes of its nodes by name."""
  run_dir = str(tmp_path / 'run')
  program = RunningProgram(run_dir, *SMALL, '--num_steps=1000000000', f'--run_dir={run_dir}')
  try:
    program.wait_for_progress()
    nodes = program.nodes()
    assert len(nodes) == 5
    yield program, nodes
  finally:
    program.kill()


@pytest.mark.parametrize('presses', [1, 2])
def test_ctrl_c_ends_the_program_without_noise(running, presses):
  program, nodes = running
  for _ in range(presses):
    program.launcher.send_signal(signal.SIGINT)
  code, output, errors = program.end()
  assert code == 130
  assert 'Traceback' not in output + errors
  assert 'done:' not in output
  assert psutil.wait_procs(nodes.values(), timeout=0)[1] == []


def test_no_stranger_reaches_a_node(running):
  strangers.require_isolation()
  _, nodes = running
  served = {name: found for name, p in nodes.items() if (found := strangers.ports(p.pid))}
  assert served.keys() == {'monitor-0', 'replay-0', 'inference_learner-0'}
  for servers in served.values():
    assert strangers.reached(servers) == set()


def test_dry_run_prints_the_graph_and_starts_nothing(tmp_path):
  picture = tmp_path / 'graph.svg'
  process = launch(
    '--dry_run', '--num_actors=7', f'--run_dir={tmp_path / "run"}', f'--graph={picture}'
  )
  assert process.returncode == 0, process.stderr
  assert re.search(r'actor +7 x PyClassNode\(Actor\) +on a CPU worker', process.stdout)
  assert re.search(r'actor +-> inference_learner +7', process.stdout)
  assert re.search(r'inference_learner +-> replay +1', process.stdout)
  assert re.search(
    r'learning: about \d+ updates, from 4,704 of 300,000 actor_steps', process.stdout
  )
  assert not (tmp_path / 'run').exists()
  assert '7 x Actor' in picture.read_text()


def test_what_learns_little_is_warned_about_once(capsys):
  import launch as launcher

  assert _run_main(launcher, ['--dry_run', '--optimizer=rmsprop', '--num_steps=100000']) == 0
  warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith('warning')]
  assert [w.split('=')[0] for w in warnings] == ['warning: --num_steps', 'warning: --optimizer']


def test_dry_run_shows_the_placement_as_the_file_changes_it(tmp_path):
  path = tmp_path / 'placement.yaml'
  path.write_text('inference_learner: {accelerator: tpu, num_devices: 4}\nactor: {cpus: 2}\n')
  process = launch('--dry_run', '--launcher=ray', f'--placement={path}')
  assert process.returncode == 0, process.stderr
  assert re.search(r'inference_learner .* on a TPU host, devices: 4 of them', process.stdout)
  assert re.search(r'actor .* on a CPU worker, cpus: 2', process.stdout)
  assert re.search(r'monitor .* on a CPU worker, with the launcher', process.stdout)


def test_help_names_every_option_with_its_default():
  process = launch('--help')
  text = re.sub(r'\s+', ' ', process.stdout)
  assert '--batch_size: unrolls that each replica adds to a learner batch' in text
  assert '64 for r2d2' in text and '16 for sebulba' in text
  assert '(default: 1.0; anakin, impala, sebulba only)' in text  # --rho_bar


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--program=alphago'], ['--program=alphago', 'sebulba']),
    (['--env=katch'], ['--env', 'catch']),
    (['--env=atari:Pongg'], ['--env', 'Pong']),
    (['--env_options=speed=3'], ['--env_options', 'speed']),
    (['--batch_size=5', '--learner_devices=0,1'], ['--batch_size=5', '--learner_devices']),
    (['--queue_size=8'], ['--queue_size=8', '--batch_size=16']),
    (['--envs_per_actor=9'], ['--envs_per_actor=9', '--env_groups=2']),
    (['--inference_batch_size=4'], ['--inference_batch_size=4', '16']),
    (['--actor_devices=0,0'], ['--actor_devices', 'distinct']),
    (['--actor_devices=x'], ['--actor_devices', 'whole numbers']),
    (['--program=r2d2', '--replay_size=50'], ['--replay_size=50', '--min_replay_size=100']),
    (['--program=r2d2', '--samples_per_insert_error=3'], ['--samples_per_insert_error=3', '8.0']),
    (['--program=r2d2', '--samples_per_insert=0'], ['--samples_per_insert=0']),
    (
      ['--program=r2d2', '--env=dm_control:cheetah/run'],
      ['--env=dm_control:cheetah/run', 'continuous actions', '--program=sebulba'],
    ),
    (
      ['--program=r2d2', '--num_steps=20000', '--min_replay_size=5000'],
      ['--num_steps=20000', '--min_replay_size=5000', 'nothing would be learned'],
    ),
    (
      ['--program=r2d2', '--target_update_period=2500'],
      ['--target_update_period=2500', 'the target network would stay as it began'],
    ),
    (['--num_steps=500'], ['--num_steps=500', '--batch_size=16', 'nothing would be learned']),
    (['--program=r2d2', '--queue_size=50'], ['--queue_size', 'no option']),
    (['--num_replay_shards=3'], ['--batch_size=16', '--num_replay_shards=3']),
    (['--learning_rate=-1'], ['--learning_rate', '-1']),
    (['--num_steps=0'], ['--num_steps=0']),
    (['--num_replicas=0'], ['--num_replicas=0']),
    (['--num_replicas=2', '--lp_launch_type=local_mt'], ['--num_replicas', 'local_mp']),
    (['--num_replicas=2', '--accelerator=gpu'], ['--num_replicas', 'a GPU host', '--launcher']),
    (['--run_dir=/proc/nothing'], ['--run_dir', 'cannot be written']),
    (['--placement=/nothing.yaml'], ['--placement=/nothing.yaml', 'cannot be read']),
    (['--launcher=ray', '--lp_launch_type=local_mt'], ['--lp_launch_type', '--launcher=local']),
    (['--launcher=ray', '--accelerator=tpu', '--learner_devices=1,2'], ['3 TPU', '--placement']),
    (['--launcher=ray', '--isolate=require'], ['--isolate=require', '--launcher=local']),
    (['--launcher=k8s', '--output=x'], ['--image']),
    (['--launcher=k8s', '--image=x'], ['--output']),
    (['--launcher=k8s', '--image=x', '--run_dir=y'], ['--run_dir', '--k8s_volume']),
    (
      ['--launcher=k8s', '--image=x', '--output=/proc/x'],
      ['--output=/proc/x', 'cannot be written'],
    ),
    (
      ['--launcher=k8s', '--image=x', '--output=y', '--accelerator=tpu'],
      ['topology', '--placement'],
    ),
    (['--launcher=k8s', '--image=x', '--output=y', '--k8s_name=A'], ['--k8s_name=A', 'lower-case']),
    (['--launcher=k8s', '--image=x', '--dry_run', '--accelerator=tpu'], ['topology']),
    (['--program=anakin', '--env=atari:Pong'], ['--env=atari:Pong', 'catch', 'gymnax:CartPole-v1']),
    (['--program=anakin', '--env=gymnax:CartPol-v1'], ['CartPol-v1', 'did you mean CartPole-v1']),
    (['--program=anakin', '--env_options=speed=3'], ['--env_options', 'speed']),
    (['--program=anakin', '--num_actors=2'], ['--num_actors', 'no option']),
    (['--program=impala', '--inference_batch_size=32'], ['--inference_batch_size', 'no option']),
    (['--inference_nodes=-1'], ['--inference_nodes=-1', 'negative']),
    (['--inference_nodes=3', '--num_actors=4'], ['--num_actors=4', '--inference_nodes=3']),
    (['--inference_nodes=2', '--num_replicas=2'], ['--inference_nodes=2', '--num_replicas=2']),
    (
      ['--inference_nodes=2', '--env_groups=1', '--actor_devices=0,1'],
      ['--actor_devices', '1 groups'],
    ),
    (['--program=impala', '--num_replicas=2'], ['--num_replicas', 'no option']),
    (['--program=impala', '--queue_size=8'], ['--queue_size=8', '--batch_size=16']),
    (['--program=impala', '--update_period=0'], ['--update_period=0', 'above 0']),
    (['--program=anakin', '--num_envs=9', '--num_devices=2'], ['--num_envs=9', '--num_devices=2']),
    (['--program=anakin', '--updates_per_call=0'], ['--updates_per_call=0', 'at least 1']),
    (
      ['--program=anakin', '--num_envs=16384', '--updates_per_call=6554'],
      ['--updates_per_call=6554', '--num_envs=16384', '--unroll_length=20', 'smaller'],
    ),
    (['--seed=-1'], ['--seed', '-1', '0 or more']),
    (['--eval_period=-1'], ['--eval_period', '-1']),
    (['--inference_timeout_ms=inf'], ['--inference_timeout_ms', 'inf', 'finite']),
    (['--checkpoint_period=nan'], ['--checkpoint_period', 'nan', 'finite']),
    (['--entropy_cost=nan'], ['--entropy_cost', 'nan', 'finite']),
    (['--node_timeout=nan'], ['--node_timeout=nan', 'finite']),
    (['--launcher=pod'], ['--launcher=k8s', 'JOB_COMPLETION_INDEX']),
    (['--dry_run', '--graph=graph.png'], ['--graph=graph.png', '.svg']),
    (['nonsense'], ["'nonsense'"]),
  ],
)
def test_bad_flags_are_refused_in_one_sentence_before_anything_starts(flags, words, capsys):
  import launch as launcher

  code = _run_main(launcher, flags)
  captured = capsys.readouterr()
  assert code == 2
  assert captured.out == ''
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in words:
    assert word in captured.err


def test_an_unknown_flag_gets_a_suggestion():
  process = launch('--num_stepz=3')
  assert process.returncode != 0
  assert 'Did you mean: num_steps' in process.stderr


def test_a_run_directory_in_use_is_refused(tmp_path, capsys):
  import launch as launcher

  (tmp_path / 'summary.json').write_text('{}')
  assert _run_main(launcher, [f'--run_dir={tmp_path}']) == 2
  assert 'is not empty' in capsys.readouterr().err


def _earlier_run(path, learner_steps=5, actor_steps=100):
  """Makes the directory of a run of 2,000 steps that was stopped."""
  from programs import sebulba
  from rundir import run_directory

  config = sebulba.Config(num_steps=2000).resolve()
  run_directory.write_record(str(path), 'sebulba', {'num_steps': 2000}, config)
  if actor_steps >= 2000:
    (path / 'summary.json').write_text('{}')
  if learner_steps:
    counts = {'learner_steps': learner_steps, 'actor_steps': actor_steps}
    checkpoints.write(checkpoints.directory(str(path)), counts, b'state', keep=1)


@pytest.mark.parametrize(
  'run, flags, words',
  [
    ({}, ['--torso=deep'], ['--torso', 'cannot change', "'auto'"]),
    ({}, ['--env=cartpole'], ['--env=cartpole', 'cannot change', "'catch'"]),
    ({}, ['--program=r2d2'], ['--program=sebulba', 'leave --program out']),
    ({}, ['--run_dir=elsewhere'], ['--run_dir=elsewhere', 'cannot change']),
    ({'learner_steps': 0}, [], ['no checkpoint yet']),
    ({'actor_steps': 2000}, [], ['has done its 2000', '--num_steps']),
    (None, [], ['is not the directory of a run']),
  ],
)
def test_a_run_that_cannot_be_resumed_is_refused_in_one_sentence(
  tmp_path, run, flags, words, capsys
):
  import launch as launcher

  if run is not None:
    _earlier_run(tmp_path, **run)
  assert _run_main(launcher, [f'--resume={tmp_path}', *flags]) == 2
  captured = capsys.readouterr()
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in (f'--resume={tmp_path}' if not flags else '', *words):
    assert word in captured.err


def test_a_damaged_checkpoint_is_refused_before_anything_starts(tmp_path, capsys):
  import launch as launcher

  _earlier_run(tmp_path)
  (file,) = (tmp_path / 'checkpoints').iterdir()
  file.write_bytes(file.read_bytes() + b'x')
  assert _run_main(launcher, [f'--resume={tmp_path}']) == 2
  assert f'{file} is damaged' in capsys.readouterr().err


def test_a_run_that_goes_on_is_not_resumed(tmp_path):
  from rundir import run_directory

  run_directory.create(str(tmp_path))  # This process has it now.
  _earlier_run(tmp_path)
  process = launch(f'--resume={tmp_path}')
  assert process.returncode == 2
  assert 'that run is still going on' in process.stderr


def _run_main(launcher, flags):
  from absl import flags as absl_flags

  from programs.options import flags as config_flags

  if 'batch_size' not in absl_flags.FLAGS:
    config_flags.define()
  saved = absl_flags.FLAGS  # Every test parses its own command line.
  saved.unparse_flags()
  for name in list(saved):
    saved[name].unparse()
  # To isolate a run, its process begins anew, which this one is not to do.
  return launcher.main(saved(['launch.py', '--isolate=no', *flags]))
