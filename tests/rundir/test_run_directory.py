"""What a run's directory says about the run."""

import dataclasses
import importlib.metadata
import json
import os
import stat
import sys

import pytest

from rundir import run_directory, run_end


@dataclasses.dataclass
class Config:
  env_options: str = ''
  num_steps: int = 1


@pytest.fixture
def usual_umask():
  before = os.umask(0o022)
  yield
  os.umask(before)


def _record(path):
  return json.loads((path / 'config.json').read_text())


def test_a_file_that_is_no_record_is_rejected_in_one_sentence(tmp_path):
  (tmp_path / 'config.json').write_text('[1]')
  with pytest.raises(ValueError, match=r'config.json cannot be read: .*\.$'):
    run_directory.read_record(str(tmp_path))
  assert run_directory.program_of(str(tmp_path)) == ''


@pytest.mark.parametrize('name, value', [('program', None), ('config', []), ('given', None)])
def test_a_record_with_a_part_of_another_type_is_rejected_in_one_sentence(tmp_path, name, value):
  run_directory.write_record(str(tmp_path), 'sebulba', {}, vars(Config()))
  (tmp_path / 'config.json').write_text(json.dumps(_record(tmp_path) | {name: value}))
  with pytest.raises(
    ValueError, match=rf'config.json cannot be read: {name} is .*, not a '
  ) as error:
    run_directory.read_record(str(tmp_path))
  assert '\n' not in str(error.value)


def test_the_files_of_an_earlier_command_are_not_those_of_a_rejected_launch(tmp_path):
  for _ in range(2):
    run_directory.write_record(str(tmp_path), 'sebulba', {}, vars(Config()))
  run_directory.delete_rejected(str(tmp_path))
  assert (tmp_path / 'config.json').exists()


@pytest.mark.parametrize('content', ['', '\0' * 900, '\n'])
def test_a_record_that_a_power_failure_emptied_is_rejected_in_one_sentence(tmp_path, content):
  (tmp_path / 'config.json').write_text(content)
  for read in (run_directory.reopen, run_directory.read_record):
    with pytest.raises(ValueError, match=r'config.json cannot be read: it is empty; put a copy'):
      read(str(tmp_path))
  with pytest.raises(ValueError, match='it is empty'):
    run_directory.write_record(str(tmp_path), 'sebulba', {}, vars(Config()))
  assert run_directory.program_of(str(tmp_path)) == ''


@pytest.mark.parametrize('content', ['', '[1]', '\0\0'])
def test_a_file_that_is_not_a_summary_is_none(tmp_path, content):
  (tmp_path / 'summary.json').write_text(content)
  assert run_end.read_summary(str(tmp_path)) is None
  assert run_end.result(str(tmp_path)) == ''


def test_the_result_has_what_the_summary_has(tmp_path):
  (tmp_path / 'summary.json').write_text('{"learner_steps": 7}')
  (tmp_path / 'end.json').write_text('{"exit_code": 0}')  # Without its seconds.
  assert run_end.result(str(tmp_path)) == f'done: learner_steps=7 run_dir={tmp_path}'


def test_the_end_of_a_program_is_its_result_until_the_run_continues(tmp_path):
  path = str(tmp_path)
  run_directory.write_record(path, 'sebulba', {}, vars(Config()))
  run_end.record_end(path, 1, 2.0)
  assert not run_end.has_ended(path) and run_end.result(path) == ''
  run_end.record_end(path, 0, 12.345)
  assert run_end.result(path) == f'done: seconds=12.3 run_dir={path}'
  counts = dict.fromkeys(('actor_steps', 'environment_frames', 'learner_steps'), 7)
  (tmp_path / 'summary.json').write_text(json.dumps({'evaluator_return': 0.5, **counts}))
  assert run_end.result(path) == (
    'done: evaluator_return=0.5 actor_steps=7 environment_frames=7 learner_steps=7 seconds=12.3 '
    f'run_dir={path}'
  )
  run_directory.write_record(path, 'sebulba', {}, vars(Config()))
  assert not run_end.has_ended(path) and run_end.result(path) == ''


def test_changed_versions_are_reported_and_both_are_kept(tmp_path, monkeypatch):
  versions = {}
  monkeypatch.setattr(importlib.metadata, 'version', lambda name: versions.get(name, '1.0'))

  def write():
    return run_directory.write_record(str(tmp_path), 'sebulba', {}, vars(Config()))

  assert write() == '' and write() == ''
  versions['jax'] = '2.0'
  assert 'resumes with other versions: jax 2.0 (was 1.0).' in write()
  assert write() == ''
  record = run_directory.read_record(str(tmp_path))
  assert record.versions['jax'] == '2.0' and len(record.commands) == 4
  assert [v['jax'] for v in record.earlier_versions] == ['1.0']


def test_a_record_of_an_earlier_version_of_launchpod_is_read(tmp_path):
  run_directory.write_record(str(tmp_path), 'sebulba', {}, vars(Config()))
  record = _record(tmp_path)
  del record['earlier_versions']
  (tmp_path / 'config.json').write_text(json.dumps(record))
  assert run_directory.read_record(str(tmp_path)).earlier_versions == []


def test_secrets_are_in_no_recorded_command_and_their_file_is_the_owners(
  tmp_path, monkeypatch, usual_umask
):
  for options, mode in (('rows=5', 0o644), ('rows=5,api_key=abc', 0o600)):
    monkeypatch.setattr(sys, 'argv', ['launch.py', f'--env_options={options}'])
    config = Config(env_options=options)
    run_directory.write_record(str(tmp_path), 'sebulba', {'env_options': options}, vars(config))
    assert stat.S_IMODE((tmp_path / 'config.json').stat().st_mode) == mode
  record = run_directory.read_record(str(tmp_path))
  assert record.commands[-1] == ['launch.py', '--env_options=rows=5,api_key=***']
  assert record.given == {'env_options': 'rows=5,api_key=abc'}  # For --resume.


def test_a_record_with_secrets_is_still_the_owners_once_it_is_put_back(tmp_path, usual_umask):
  for options, mode in (('rows=5', 0o644), ('rows=5,api_key=abc', 0o600)):
    config = Config(env_options=options)
    run_directory.write_record(str(tmp_path), 'sebulba', {'env_options': options}, vars(config))
    earlier = run_directory.earlier_files(str(tmp_path))
    run_directory.write_record(str(tmp_path), 'sebulba', {}, vars(Config(num_steps=2)))
    run_directory.restore(str(tmp_path), earlier)
    assert run_directory.read_record(str(tmp_path)).config['num_steps'] == 1
    assert stat.S_IMODE((tmp_path / 'config.json').stat().st_mode) == mode


def test_a_restart_is_of_a_node_whatever_machine_it_was_on(tmp_path):
  assert run_directory.restart_times(str(tmp_path)) == []
  for name in ('actor/0', 'actor/3 on worker5'):
    run_directory.record_restart(str(tmp_path), name)
  assert [node for _, node in run_directory.restart_times(str(tmp_path))] == ['actor/0', 'actor/3']


def test_what_a_full_disk_leaves_is_not_another_run(tmp_path):
  for name in ('.lock', '.writable'):
    (tmp_path / name).touch()
  run_directory.check_unused(str(tmp_path))
  (tmp_path / 'notes.txt').touch()
  with pytest.raises(ValueError, match='is not empty'):
    run_directory.check_unused(str(tmp_path))


def test_the_final_evaluation_is_put_back_if_a_resume_is_rejected(tmp_path):
  run_directory.write_record(str(tmp_path), 'sebulba', {}, vars(Config()))
  evaluation = tmp_path / run_end.FINAL_EVALUATION
  evaluation.write_text('{}')
  earlier = run_directory.earlier_files(str(tmp_path))
  run_end.delete_evaluation(str(tmp_path))
  assert not evaluation.exists()
  run_end.delete_evaluation(str(tmp_path))  # A run may have none.
  run_directory.restore(str(tmp_path), earlier)
  assert evaluation.read_text() == '{}'
