"""What a resumed run may change, and what becomes of its directory."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from absl import flags

from agents.options import flatten
from agents.seeding import Seed
from launchers.follow import Follower
from launchers.local import engine
from programs import estimates, registry, runs
from programs.options import configs
from rundir import checkpoints, learners, run_directory, run_end
from tests.programs_under_test import ROOT, launch, run_main
from tests.waiting import DEADLINE

_STRIDE = 7_368_787  # By which older versions changed the seed, each time that a run was resumed.


def _stopped_run(path, program='sebulba', resumed=0, actor_steps=100, **given):
  """Makes the directory of a run that was stopped; `given` are its flags."""
  config = configs.make_config(registry.load(program), given)
  for start in range(resumed + 1):
    values = flatten(config) | {'run_dir': str(path), 'seed': config.run.seed + start * _STRIDE}
    run_directory.write_record(str(path), program, given, values)
  peers = flatten(config).get('num_peers', 1)
  counts = {'learner_steps': 5, 'actor_steps': actor_steps // peers}
  for peer in range(peers):
    directory = checkpoints.directory(learners.directory(str(path), peer))
    checkpoints.write(directory, counts, b'state', keep=1)


def _resume(path, *arguments):
  """Resumes as far as nothing is started; returns the exit code."""
  return run_main(f'--resume={path}', '--dry_run', *arguments)


@pytest.mark.parametrize(
  'run, flags',
  [
    ({'program': 'anakin'}, ['--num_devices=2', '--num_replicas=2']),
    ({'program': 'r2d2'}, ['--replay_checkpoint_period=5']),
    ({'program': 'impala'}, ['--update_period=5', '--num_actors=3']),
    ({'agent': 'ppo'}, ['--agent=ppo', '--num_epochs=4', '--num_steps=900000']),
    ({}, ['--agent=vtrace']),
    ({}, ['--num_actors=3', '--num_steps=5000', '--learner_devices=0,1']),
    ({'mlp_sizes': (128, 64)}, ['--mlp_sizes=128,64']),
    ({}, ['--seed=1']),
    ({'resumed': 1}, ['--seed=1']),
    ({'resumed': 2, 'seed': 7}, ['--seed=7']),
    ({'queue_size': 0}, ['--queue_size=0']),
    (
      {'envs_per_actor': 4},
      ['--envs_per_actor=16'],
    ),  # An item has more unrolls than the queue had.
    ({'batch_size': 4}, ['--batch_size=4']),
    ({}, ['--preset=default']),
    ({'preset': 'none'}, ['--preset=none']),
    ({'program': 'r2d2'}, ['--num_steps=900000', '--cpu_cores=3']),
    ({'program': 'r2d2', 'num_replicas': 2}, ['--num_replicas=3']),
  ],
)
def test_how_a_run_is_run_may_change_and_the_same_value_is_no_change(tmp_path, run, flags, capsys):
  _stopped_run(tmp_path, **run)
  assert _resume(tmp_path, *flags) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
  'run, flags, words',
  [
    ({}, ['--batch_size=32'], ['--batch_size=32', 'was 16']),
    ({}, ['--inference_nodes=1'], ['--inference_nodes=1', 'was 0']),
    ({}, ['--agent=ppo'], ['--agent=ppo', "was 'vtrace'"]),
    ({'agent': 'ppo'}, ['--agent=vtrace'], ['--agent=vtrace', "was 'ppo'"]),
    ({'agent': 'ppo'}, ['--num_epochs=2'], ['--num_epochs=2', 'was 4']),
    ({}, ['--mlp_sizes=7,8'], ['--mlp_sizes=7,8 ', 'was [']),
    ({'resumed': 1}, ['--seed=2'], ['--seed=2', 'was 1;']),
    ({'resumed': 1}, [f'--seed={1 + _STRIDE}'], ['was 1;']),
    ({'program': 'anakin'}, ['--num_envs=32'], ['--num_envs=32', 'was 64']),
    ({'program': 'gala'}, ['--num_peers=8'], ['--num_peers=8', 'was 4']),
    ({'program': 'population'}, ['--num_members=4'], ['--num_members=4', 'was 8']),
    ({'program': 'r2d2'}, ['--replay_size=6000'], ['--replay_size=6000']),
    ({}, ['--preset=none'], ['--preset=none', "was 'default'"]),
    ({}, ['--init_from=/other'], ['--init_from=/other', "was ''"]),
    ({'preset': 'none'}, ['--preset=default'], ['--preset=default', "was 'none'"]),
  ],
)
def test_what_a_run_learns_from_may_not_change(tmp_path, run, flags, words, capsys):
  _stopped_run(tmp_path, **run)
  assert _resume(tmp_path, *flags) == 2
  error = capsys.readouterr().err
  for word in ('cannot change', *words):
    assert word in error


_SAC = {'program': 'sac', 'env': 'gymnasium:Pendulum-v1'}


@pytest.mark.parametrize('change', ['--envs_per_actor=16', '--env_groups=1'])
def test_the_items_of_a_replay_that_is_restored_stay_as_they_were(tmp_path, change, capsys):
  for name in ('run', 'empty'):
    (tmp_path / name).mkdir()
  _stopped_run(tmp_path / 'run', **_SAC)
  assert _resume(tmp_path / 'run', change) == 2
  assert 'leave out --envs_per_actor, --env_groups' in capsys.readouterr().err
  assert _resume(tmp_path / 'run', '--num_actors=2') == 0
  _stopped_run(tmp_path / 'empty', **_SAC, replay_checkpoint_period=0.0)
  assert _resume(tmp_path / 'empty', change) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
  'words, code', [([], 0), (['--preset=default'], 0), (['--preset=none'], 2)]
)
def test_a_run_of_a_version_without_names_for_presets_continues_as_it_was(
  tmp_path, words, code, capsys
):
  _stopped_run(tmp_path, 'r2d2', num_steps=200_000)
  path = tmp_path / 'config.json'
  record = json.loads(path.read_text())
  del record['config']['preset'], record['config']['cpu_cores']
  record['config'] |= {'target_update_period': 100, 'min_replay_size': 110}
  path.write_text(json.dumps(record))
  assert _resume(tmp_path, '--num_steps=900000', *words) == code
  printed = capsys.readouterr()
  if code:
    assert "where it was 'default'" in printed.err
  else:
    assert '--min_replay_size=110' in printed.out and '--target_update_period=100' in printed.out


@pytest.mark.parametrize('option', ['unroll_length', 'batch_size', 'target_update_period'])
def test_a_record_with_a_number_that_is_out_of_range_is_refused(tmp_path, option, capsys):
  _stopped_run(tmp_path, 'r2d2', num_steps=1_000_000, env='cartpole')
  path = tmp_path / 'config.json'
  record = json.loads(path.read_text())
  record['config'][option] = 0
  path.write_text(json.dumps(record))
  assert _resume(tmp_path) == 2
  assert f'--{option} is 0: set it to 1 or more.' in capsys.readouterr().err


@pytest.mark.parametrize(
  'program, option, flags',
  [
    ('sebulba', 'learning_rate_decay_steps', {'learning_rate_schedule': 'linear'}),
    # A preset chooses fewer samples per insert for a longer run, but a resumed run keeps its own.
    ('r2d2', 'learning_rate_decay_steps', {'env': 'cartpole'}),
    ('muzero', 'temperature_decay_steps', {}),
  ],
)
def test_a_decay_ends_with_the_resumed_run_whatever_its_preset_would_choose(
  tmp_path, program, option, flags, capsys
):
  _stopped_run(tmp_path, program, num_steps=1_000_000, **flags)
  before = runs.recorded_run(str(tmp_path)).config
  shutil.copytree(tmp_path, tmp_path / 'same')  # This process keeps the locks that it takes.
  assert _resume(tmp_path / 'same', '--num_steps=10000000') == 0, capsys.readouterr().err
  config = runs.resumed_run(str(tmp_path), '').config  # With the same flags.
  steps = flatten(config)[option]
  assert steps == estimates.expected(config).updates > 9 * flatten(before)[option] > 0


def test_a_decay_ends_with_a_run_that_continues_with_more_replicas(tmp_path, capsys):
  half = 500_000
  _stopped_run(
    tmp_path, num_steps=2 * half, actor_steps=half, learning_rate_schedule='linear', num_replicas=2
  )
  before = runs.recorded_run(str(tmp_path)).config
  shutil.copytree(tmp_path, tmp_path / 'same')  # This process keeps the locks that it takes.
  assert _resume(tmp_path / 'same', '--num_replicas=4') == 0, capsys.readouterr().err
  resumed = runs.resumed_run(str(tmp_path), '')  # With the same flags.
  rest = estimates.expected(resumed.config).updates / 2
  assert rest == pytest.approx(estimates.expected(before).updates / 4, rel=0.01)
  steps = resumed.config.agent.learning_rate_decay_steps
  assert steps == pytest.approx(5 + rest, rel=0.01)
  assert (
    resumed.given['learning_rate_decay_steps'] == steps
  )  # Which a further resume does not change.


def test_options_that_are_newer_than_a_run_have_their_defaults_whatever_its_preset_says(
  tmp_path, capsys
):
  _stopped_run(tmp_path, agent='ppo', env='gymnasium:Hopper-v5')
  assert runs.recorded_run(str(tmp_path)).config.agent.normalize_observations
  path = tmp_path / 'config.json'
  record = json.loads(path.read_text())
  del record['config']['normalize_observations'], record['config']['normalize_rewards']
  path.write_text(json.dumps(record))
  config = runs.recorded_run(str(tmp_path)).config
  assert not config.agent.normalize_observations and not config.agent.normalize_rewards
  assert config.agent.policy_std == 'free'  # Recorded.
  shutil.copytree(tmp_path, tmp_path / 'same')  # This process keeps the locks that it takes.
  assert _resume(tmp_path / 'same', '--normalize_rewards=false') == 0, capsys.readouterr().err
  assert '--normalize_observations=False' in capsys.readouterr().out
  assert _resume(tmp_path, '--normalize_observations') == 2
  assert '--normalize_observations=True cannot change' in capsys.readouterr().err


def test_a_run_keeps_the_options_whose_name_its_version_had_another_for(tmp_path, capsys):
  _stopped_run(tmp_path, core='lstm', core_size=7)
  path = tmp_path / 'config.json'
  record = json.loads(path.read_text())
  for part in ('given', 'config'):
    record[part]['lstm_size'] = record[part].pop('core_size')
  path.write_text(json.dumps(record))
  assert runs.recorded_run(str(tmp_path)).config.agent.core_size == 7
  assert run_main('--dry_run', f'--config={path}') == 0, capsys.readouterr().err
  assert runs.new_run('sebulba').config.agent.core_size == 7
  assert _resume(tmp_path, '--lstm_size=7') == 2
  assert 'did you mean --core_size' in capsys.readouterr().err
  shutil.copytree(tmp_path, tmp_path / 'same')  # This process keeps the locks that it takes.
  assert _resume(tmp_path / 'same', '--core_size=8') == 2
  assert (
    '--core_size=8 cannot change when a run is resumed, where it was 7' in capsys.readouterr().err
  )
  assert _resume(tmp_path) == 0, capsys.readouterr().err
  assert runs.resumed_run(str(tmp_path), '', lock=False).config.agent.core_size == 7


@pytest.mark.parametrize(
  'env_options, before', [('', 'flatten=true'), ('flatten=no', 'flatten=no')]
)
def test_a_run_keeps_the_images_that_its_version_flattened(tmp_path, env_options, before, capsys):
  _stopped_run(tmp_path, env='gymnasium:Acrobot-v1', env_options=env_options)
  assert runs.recorded_run(str(tmp_path)).config.run.env_options == env_options
  path = tmp_path / 'config.json'
  record = json.loads(path.read_text())
  del record['images_stay']
  path.write_text(json.dumps(record))
  assert runs.recorded_run(str(tmp_path)).config.run.env_options == before
  assert _resume(tmp_path) == 0, capsys.readouterr().err
  assert runs.resumed_run(str(tmp_path), '', lock=False).config.run.env_options == before


@pytest.mark.parametrize('program', ['sebulba', 'r2d2', 'impala', 'anakin', 'gala'])
def test_a_run_that_has_trained_gets_its_final_evaluation_once(tmp_path, program, capsys):
  for name in ('trained', 'evaluated', 'longer'):  # This process keeps the locks that it takes.
    (tmp_path / name).mkdir()
    _stopped_run(tmp_path / name, program, actor_steps=300000, num_steps=300000)
    if name != 'trained':
      (tmp_path / name / 'summary.json').write_text('{}')
  assert _resume(tmp_path / 'trained') == 0, capsys.readouterr().err
  assert _resume(tmp_path / 'evaluated') == 2
  assert 'has done its 300000 actor_steps; raise --num_steps' in capsys.readouterr().err
  assert _resume(tmp_path / 'longer', '--num_steps=400000') == 0


def test_the_decay_of_a_compiled_loop_does_not_depend_on_the_hosts_that_it_is_spread_over(tmp_path):
  _stopped_run(tmp_path, 'anakin', learning_rate_schedule='linear')
  before = runs.recorded_run(str(tmp_path)).config
  assert _resume(tmp_path, '--num_replicas=2') == 0
  resumed = runs.resumed_run(str(tmp_path), '', lock=False).config  # With the same flags.
  assert resumed.loop.num_replicas == 2
  steps = before.agent.learning_rate_decay_steps
  assert resumed.agent.learning_rate_decay_steps == steps > 0


def test_each_time_that_a_run_is_resumed_its_seeds_are_others(tmp_path, monkeypatch):
  roots, module = [], registry.load('sebulba')
  make_program = module.make_program

  def make(config):
    roots.append(config.root_seed)
    return make_program(config)

  monkeypatch.setattr(module, 'make_program', make)
  for resumed in range(3):
    path = tmp_path / str(resumed)
    path.mkdir()
    _stopped_run(path, resumed=resumed)
    assert _resume(path) == 0
  assert set(roots) == {Seed(1).child('resume', resumes) for resumes in (1, 2, 3)}
  assert configs.make_config(module, {}).root_seed == Seed(1).child('resume', 0)
  assert 'resumes' not in flags.FLAGS  # The record knows.


def test_what_may_change_still_has_to_fit(tmp_path, capsys):
  _stopped_run(tmp_path)
  assert _resume(tmp_path, '--num_actors=0') == 2
  assert '--num_actors is 0: set it to a number from 1 to 65536' in capsys.readouterr().err


def test_the_directory_of_the_run_may_be_named_again(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'run').mkdir()
  _stopped_run(tmp_path / 'run')
  assert _resume('run', '--run_dir=run') == 0


def test_a_resume_that_starts_nothing_leaves_the_directory_as_it_is(tmp_path):
  _stopped_run(tmp_path)
  before = sorted(tmp_path.rglob('*'))
  assert _resume(tmp_path) == 0
  assert sorted(tmp_path.rglob('*')) == before


@pytest.mark.slow
def test_a_resume_that_starts_nothing_leaves_the_result(tmp_path):
  _stopped_run(tmp_path)
  result = tmp_path / 'summary.json'
  result.write_text('{}')
  assert launch(f'--resume={tmp_path}', '--dry_run').returncode == 0
  assert launch(f'--resume={tmp_path}', '--torso=deep').returncode == 2
  assert result.exists()
  _stopped_run(tmp_path)
  assert not result.exists()
  assert len(json.loads((tmp_path / 'config.json').read_text())['commands']) == 2


def test_a_resume_that_the_engine_rejects_leaves_the_record_and_the_result(tmp_path, monkeypatch):
  _stopped_run(tmp_path)
  files = {name: tmp_path / name for name in ('config.json', 'summary.json', 'end.json')}
  files['summary.json'].write_text('{}')
  run_end.record_end(str(tmp_path), 0, 3.0)
  before = {name: file.read_bytes() for name, file in files.items()}
  seen = []

  def launch(self, job, callbacks):
    seen.extend(name for name, file in files.items() if file.exists())
    raise ValueError('there is no room.')

  monkeypatch.setattr(engine.Local, 'launch', launch)
  assert run_main(f'--resume={tmp_path}', '--num_steps=900000') == 2
  assert seen == ['config.json']
  assert {name: file.read_bytes() for name, file in files.items()} == before


@pytest.mark.parametrize('last_ctrl_c', ['as the terminal closes', 'never'])
def test_nodes_that_have_run_leave_the_new_record_whatever_ends_the_launcher(
  tmp_path, monkeypatch, last_ctrl_c
):
  _stopped_run(tmp_path)
  run_end.record_end(str(tmp_path), 0, 3.0)

  def launch(self, job, callbacks):
    callbacks.accepted()
    if last_ctrl_c == 'never':
      raise RuntimeError('a defect of the launcher, after hours')
    return 130

  close = Follower.close

  def interrupted(self):
    os.kill(os.getpid(), signal.SIGINT)
    close(self)

  monkeypatch.setattr(engine.Local, 'launch', launch)
  if last_ctrl_c == 'never':
    with pytest.raises(RuntimeError):
      run_main(f'--resume={tmp_path}', '--num_steps=900000')
  else:
    monkeypatch.setattr(Follower, 'close', interrupted)
    assert run_main(f'--resume={tmp_path}', '--num_steps=900000') == 130
    assert run_end.end_of(str(tmp_path))['exit_code'] == 130
  assert run_directory.config_of(str(tmp_path))['num_steps'] == 900_000
  assert run_directory.launcher_of(str(tmp_path)) is None


def test_a_run_without_a_checkpoint_is_to_be_started_elsewhere(tmp_path, capsys):
  _stopped_run(tmp_path)
  for file in (tmp_path / 'checkpoints').iterdir():
    file.unlink()
  (tmp_path / 'checkpoints').rmdir()
  assert _resume(tmp_path) == 2
  assert 'in another --run_dir or with this one removed.' in capsys.readouterr().err
  with pytest.raises(ValueError, match=r'is not empty; name a new directory\.$'):
    run_directory.create(str(tmp_path))
  checkpoints.write(str(tmp_path / 'checkpoints'), {'learner_steps': 5}, b'state', keep=1)
  with pytest.raises(ValueError, match=r'--resume=.* resumes that run'):
    run_directory.create(str(tmp_path))


def test_a_directory_that_other_pods_have_written_to_is_taken(tmp_path):
  (tmp_path / 'replay' / '0').mkdir(parents=True)
  with pytest.raises(ValueError, match='is not empty'):
    run_directory.create(str(tmp_path))
  assert run_directory.create_or_reopen(str(tmp_path)) == str(tmp_path)


def test_a_directory_that_another_launcher_has_is_rejected(tmp_path):
  run_directory.create(str(tmp_path))
  script = f'from rundir import run_directory; run_directory.create({str(tmp_path)!r})'
  process = subprocess.run(
    [sys.executable, '-c', script], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE
  )
  assert f'--run_dir={tmp_path} is taken by another launch.py; name a new' in process.stderr


def test_a_program_that_is_none_has_no_environments(capsys):
  assert run_main('--program=bad', '--list_envs') == 2
  assert capsys.readouterr().err.startswith('error: --program=bad')
