"""Files that are there whole or not at all."""

import dataclasses
import json
import os
import stat

import pytest

from nodes import monitor
from rundir import checkpoints, files, final_params, run_directory, run_end


@dataclasses.dataclass
class Config:
  num_steps: int = 1


def _write_config(path):
  run_directory.write_record(path, 'sebulba', {}, vars(Config()))
  return 'config.json'


def _write_checkpoint(path):
  return checkpoints.write(path, {'learner_steps': 3}, b'state', keep=1)


def _write_params(path):
  return final_params.save(path, b'params')


def _write_evaluation(path):
  monitor.Monitor(path, num_steps=1, evaluators=['evaluator/0']).final_evaluation(
    'evaluator/0', {'evaluator_return': 1.0}
  )
  return run_end.FINAL_EVALUATION


@pytest.mark.parametrize(
  'write', [_write_config, _write_checkpoint, _write_params, _write_evaluation]
)
def test_a_renamed_file_is_synced_before_and_its_directory_after(tmp_path, monkeypatch, write):
  events = []
  fsync, replace = os.fsync, os.replace

  def record_sync(handle):
    kind = 'directory' if stat.S_ISDIR(os.fstat(handle).st_mode) else 'file'
    events.append((kind, os.readlink(f'/proc/self/fd/{handle}')))
    fsync(handle)

  def record_replace(source, target):
    events.append(('rename', str(target)))
    replace(source, target)

  monkeypatch.setattr(os, 'fsync', record_sync)
  monkeypatch.setattr(os, 'replace', record_replace)
  name = write(str(tmp_path))
  file = os.path.join(str(tmp_path), name)
  partial, directory = events[0][1], os.path.dirname(file)
  assert os.path.dirname(partial) == directory
  assert events == [('file', partial), ('rename', file), ('directory', directory)]


def test_a_failed_write_keeps_the_previous_file_and_leaves_no_other(tmp_path):
  path = tmp_path / 'file'
  path.write_text('before')
  with pytest.raises(RuntimeError, match='no more'), files.replacing(str(path)) as f:
    f.write(b'half')
    raise RuntimeError('no more')
  assert path.read_text() == 'before' and os.listdir(tmp_path) == ['file']


def test_a_file_has_the_permissions_asked_for_whatever_a_dead_process_left(tmp_path):
  path = tmp_path / 'file.json'
  (tmp_path / 'file.json.tmp').write_text('half')  # With those of the umask.
  files.write_json(str(path), {'a': 1}, mode=0o600)
  assert json.loads(path.read_text()) == {'a': 1}
  assert stat.S_IMODE(path.stat().st_mode) == 0o600
