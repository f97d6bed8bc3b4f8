"""The earlier runs that launch.py refuses to resume, or to begin from."""

import json

import pytest

from agents.options import flatten, make
from programs import gala, sebulba
from rundir import checkpoints, learners, run_directory
from tests.programs_under_test import launch, run_main


def _earlier_run(path, learner_steps=5, actor_steps=100):
  """Makes the directory of a run of 2,000 steps that was stopped."""
  config = make(sebulba.Config, num_steps=2000).resolve()
  run_directory.write_record(str(path), 'sebulba', {'num_steps': 2000}, flatten(config))
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
def test_a_run_that_cannot_be_resumed_is_rejected_in_one_sentence(
  tmp_path, run, flags, words, capsys
):
  if run is not None:
    _earlier_run(tmp_path, **run)
  assert run_main(f'--resume={tmp_path}', *flags) == 2
  captured = capsys.readouterr()
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in (f'--resume={tmp_path}' if not flags else '', *words):
    assert word in captured.err


def test_peers_without_a_checkpoint_are_counted(tmp_path, capsys):
  config = make(gala.Config, num_peers=3).resolve()
  run_directory.write_record(str(tmp_path), 'gala', {'num_peers': 3}, flatten(config))
  for peer in (0, 2):
    path = checkpoints.directory(learners.directory(str(tmp_path), peer))
    checkpoints.write(path, {'learner_steps': 5, 'actor_steps': 100}, b'state', keep=1)
  assert run_main(f'--resume={tmp_path}') == 2
  error = capsys.readouterr().err
  assert 'has checkpoints of 2 of its 3 peers' in error and error.count('\n') == 1


@pytest.mark.parametrize(
  'flag, said',
  [
    ('resume', 'cannot continue: none of the 1 '),
    ('init_from', 'has no parameters: none of the 1 '),
  ],
)
def test_a_damaged_checkpoint_is_rejected_before_anything_starts(tmp_path, flag, said, capsys):
  _earlier_run(tmp_path)
  (file,) = (tmp_path / 'checkpoints').iterdir()
  file.write_bytes(file.read_bytes() + b'x')
  assert run_main(f'--{flag}={tmp_path}') == 2
  error = capsys.readouterr().err
  assert error.startswith(f'error: --{flag}={tmp_path} {said}') and f'{file} is damaged' in error


@pytest.mark.parametrize('flag', ['resume', 'init_from'])
@pytest.mark.parametrize(
  'part, name, value',
  [
    ('config', 'env', 5),
    ('config', 'env_options', None),
    ('config', 'mlp_sizes', 64),
    ('config', 'mlp_sizes', [None]),
    ('config', 'agent', [1]),
    ('given', 'env', None),
    ('given', 'num_steps', 'many'),
  ],
)
def test_a_record_with_an_option_of_another_type_is_rejected_in_one_sentence(
  tmp_path, flag, part, name, value, capsys
):
  _earlier_run(tmp_path)
  record = json.loads((tmp_path / 'config.json').read_text())
  record[part][name] = value
  (tmp_path / 'config.json').write_text(json.dumps(record))
  assert run_main(f'--{flag}={tmp_path}') == 2
  error = capsys.readouterr().err
  assert error.startswith(f'error: --{flag}={tmp_path} is a run of another version')
  assert error.count('\n') == 1


@pytest.mark.slow
def test_a_run_that_still_runs_is_not_resumed(tmp_path):
  run_directory.create(str(tmp_path))  # This process has it now.
  _earlier_run(tmp_path)
  process = launch(f'--resume={tmp_path}')
  assert process.returncode == 2
  assert 'that run is still running' in process.stderr
