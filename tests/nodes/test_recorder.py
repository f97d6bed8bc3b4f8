"""Measurements on disks that are full, slow, or not there."""

import _multiprocessing
import errno
import io
import math
import os
import pathlib
import struct
import subprocess
import threading
import time

import pytest
from PIL import Image
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from nodes.monitor import Monitor
from nodes.runtime import full_disk
from rundir import curves, files, recorder, videos


def events(run_dir):
  """Returns the scalars in a run's event files as (tag, step, value)."""
  read = summaries(os.path.join(run_dir, 'tensorboard'))
  return [(v.tag, event.step, v.simple_value) for event in read for v in event.summary.value]


def summaries(directory):
  """Returns the events in the files of a directory; every record is to be whole."""
  found = []
  for name in sorted(os.listdir(directory)):
    with open(os.path.join(directory, name), 'rb') as f:
      content = f.read()
    while content:
      (length,) = struct.unpack('<Q', content[:8])
      record, check = content[12 : 12 + length], content[12 + length : 16 + length]
      assert struct.unpack('<I', content[8:12])[0] == masked_crc32c(content[:8])
      assert struct.unpack('<I', check)[0] == masked_crc32c(record)
      event = event_pb2.Event.FromString(record)
      found.append(event)
      content = content[16 + length :]
  return found


@pytest.fixture
def small_disk(tmp_path):
  """A directory with room for a megabyte, in a file system of its own."""
  path = tmp_path / 'disk'
  path.mkdir()
  mount = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'none', str(path)]
  if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
    pytest.skip('only root, where the system lets it mount, can have a disk that is full.')
  yield path
  subprocess.run(['umount', '-l', str(path)], check=True)


@pytest.fixture(autouse=True)
def recovers_at_once(monkeypatch):
  monkeypatch.setattr(recorder, '_CALM_SECONDS', 0.0)


def fill(disk):
  with open(disk / 'ballast', 'wb', buffering=0) as f, pytest.raises(OSError, match='No space'):
    while True:
      f.write(bytes(1 << 16))


def test_a_full_disk_costs_measurements_and_nothing_else(small_disk):
  run_dir = str(small_disk)
  subject = Monitor(run_dir, num_steps=1000, evaluators=['evaluator/0'])

  def report(first, count):
    for step in range(first, first + count):
      counts = {'actor_steps': float(step), 'environment_frames': float(step)}
      subject.report('inference_learner/0', counts | {'loss': 0.5})
    assert subject.flush()

  report(1, 1)
  fill(small_disk)
  report(2, 500)
  assert subject.status()['problem'].startswith(f'measurements are lost, {run_dir} cannot be')
  assert subject.status()['counts']['actor_steps'] == 501  # The view continues.
  lost = subject.status()['lost_rows']
  assert 0 < lost <= 500
  (small_disk / 'ballast').unlink()
  report(502, 2)
  assert subject.status()['problem'] == '' and subject.status()['lost_rows'] == lost
  rows = curves.read(run_dir, 'inference_learner/0', 'actor_steps', 'environment_frames', 'loss')
  assert rows[0][0] == 1 and [row[0] for row in rows[-2:]] == [502, 503]
  assert all(row == (row[0], row[0], 0.5) for row in rows)
  steps = [step for tag, step, value in events(run_dir) if tag == 'inference_learner/loss']
  assert steps[0] == 1 and steps[-2:] == [502, 503]


def test_a_disk_that_was_full_from_the_beginning_takes_measurements_once_it_has_room(small_disk):
  fill(small_disk)
  subject = Monitor(str(small_disk), num_steps=1000, evaluators=['evaluator/0'])
  subject.report('actor/0', {'share': 1.0})
  assert subject.flush()
  assert 'No space left' in subject.status()['problem']
  (small_disk / 'ballast').unlink()
  subject.report('actor/0', {'share': 2.0})
  assert subject.flush()
  assert curves.read(str(small_disk), 'actor/0', 'share') == [(2.0,)]
  assert events(str(small_disk))[0] == ('actor/share', 0, 2.0)


def test_a_disk_that_hangs_delays_no_report(tmp_path, monkeypatch):
  monkeypatch.setattr(recorder, '_CAPACITY', 2)
  subject = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
  answers = threading.Event()
  write, writing = recorder.CsvWriter.write, threading.Event()

  def stalled(table, row):
    writing.set()
    answers.wait()
    write(table, row)

  monkeypatch.setattr(recorder.CsvWriter, 'write', stalled)
  subject.report('actor/0', {'share': 0.0})
  assert writing.wait(60)
  for i in range(1, 10):
    subject.report('actor/0', {'share': float(i)})
  assert 'the disk does not answer' in subject.status()['problem']
  assert not subject.flush(timeout=0.0)
  answers.set()
  assert subject.flush()
  assert subject.status()['problem'] == '' and subject.status()['lost_rows'] == 7
  assert curves.read(str(tmp_path), 'actor/0', 'share') == [(0.0,), (1.0,), (2.0,)]


def test_a_disk_that_hangs_does_not_keep_a_recorder_open(tmp_path, monkeypatch):
  monkeypatch.setattr(recorder, '_CAPACITY', 1)
  writing, answers = threading.Event(), threading.Event()

  def stalled(table, row):
    writing.set()
    answers.wait()

  monkeypatch.setattr(recorder.CsvWriter, 'write', stalled)
  subject = recorder.Recorder(str(tmp_path))
  subject.put('actor/0', {'share': 0.0}, 0, {})
  assert writing.wait(60)
  subject.put('actor/0', {'share': 1.0}, 0, {})  # Nothing more fits into the queue.
  subject.close(timeout=0.0)
  assert subject._thread.is_alive() and not subject.flush(timeout=0.0)
  assert subject.lost == 0, 'it has waited until the write failed'
  answers.set()
  assert subject.flush()
  subject.close()
  assert not subject._thread.is_alive()


def test_rows_of_which_some_fit_are_one_problem(tmp_path, monkeypatch, caplog):
  monkeypatch.setattr(recorder, '_CALM_SECONDS', 1e9)
  write = recorder.CsvWriter.write

  def sometimes(table, row):
    if row['share']:
      raise OSError(errno.ENOSPC, 'No space left on device')
    write(table, row)

  monkeypatch.setattr(recorder.CsvWriter, 'write', sometimes)
  subject = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
  for i in range(10):
    subject.report('actor/0', {'share': float(i % 2)})
  assert subject.flush()
  assert 'No space left' in subject.status()['problem'] and subject.status()['lost_rows'] == 5
  assert len([r for r in caplog.records if 'measurements are' in r.getMessage()]) == 1
  assert curves.read(str(tmp_path), 'actor/0', 'share') == [(0.0,)] * 5


def test_no_shared_memory_is_needed(tmp_path, monkeypatch):
  def refuse(*args):
    raise OSError(errno.ENOENT, 'No such file or directory')

  monkeypatch.setattr(_multiprocessing, 'SemLock', refuse)  # As without /dev/shm.
  subject = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
  subject.report('actor/0', {'share': 1.0, 'not_measured': math.nan})
  assert subject.flush()
  assert subject.status()['problem'] == ''
  assert [tag for tag, _, _ in events(str(tmp_path))] == ['actor/share']


def test_a_wall_clock_that_is_set_back_is_in_no_measurement(tmp_path, monkeypatch):
  subject = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
  now = time.time
  for shift in (0.0, -3600.0):
    monkeypatch.setattr(time, 'time', lambda s=shift: now() + s)
    subject.report('inference_learner/0', {'actor_steps': 1.0})
  assert subject.flush()
  assert subject.status()['elapsed'] >= 0 and subject.status()['since_first_step'] >= 0
  seconds = [s for (s,) in curves.read(str(tmp_path), 'inference_learner/0', 'seconds')]
  assert len(seconds) == 2 and seconds == sorted(seconds) and seconds[0] >= 0


def test_a_report_with_other_names_is_under_a_header_of_its_own_names(tmp_path):
  for values in ({'episode_return': 1.0, 'loss': 2.0}, {'a_new_one': 3.0, 'episode_return': 4.0}):
    # Another incarnation.
    subject = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
    subject.report('inference_learner/0', values)
    assert subject.flush()
  for name, values in (('episode_return', [1, 4]), ('loss', [2]), ('a_new_one', [3])):
    assert [v for (v,) in curves.read(str(tmp_path), 'inference_learner/0', name)] == values


@pytest.mark.parametrize('code', [errno.ENOSPC, errno.EMFILE, errno.ESTALE])
def test_the_final_evaluation_is_requested_again_while_it_cannot_be_written(
  tmp_path, monkeypatch, code
):
  subject = Monitor(str(tmp_path), num_steps=9, evaluators=['evaluator/0'])
  write = files.write_json

  def fails(*args):
    raise OSError(code, os.strerror(code))

  monkeypatch.setattr(files, 'write_json', fails)
  with pytest.raises(RuntimeError, match='retry'):
    subject.final_evaluation('evaluator/0', {'evaluator_return': 1.0})
  assert 'cannot take the final evaluation' in subject.status()['problem']
  monkeypatch.setattr(files, 'write_json', write)
  subject.final_evaluation('evaluator/0', {'evaluator_return': 1.0})
  assert subject.flush()
  assert subject.status()['problem'] == ''
  assert curves.read(str(tmp_path), 'evaluator/0', 'evaluator_return') == [(1.0,)]


def test_the_summary_waits_for_room(tmp_path, monkeypatch):
  stopped, write = [], files.write_json
  monkeypatch.setattr('nodes.runtime.lifecycle.stop_program', lambda: stopped.append(True))
  monkeypatch.setattr(full_disk, '_PAUSE_SECONDS', 0.0)
  monkeypatch.setattr(curves, 'draw', lambda run_dir: (_ for _ in ()).throw(OSError('no room')))
  full = [True, True, True]

  def sometimes(path, values):
    if path.endswith('summary.json') and full:
      full.pop()
      raise OSError(errno.ENOSPC, 'No space left on device')
    write(path, values)

  monkeypatch.setattr(files, 'write_json', sometimes)
  subject = Monitor(str(tmp_path), num_steps=9, evaluators=[])
  subject.report_training_finished('anakin/0', {'actor_steps': 9})
  subject.run()
  assert stopped and not full and (tmp_path / 'summary.json').exists()


def test_a_number_of_steps_of_any_size_is_shown(tmp_path, connect):
  client = connect(Monitor(str(tmp_path), num_steps=10**30, evaluators=['evaluator/0']))
  assert client.status()['num_steps'] == 10**30


def gif(shade):
  content = io.BytesIO()
  Image.new('L', (6, 4), shade).save(content, 'GIF')
  return content.getvalue()


def test_the_newest_videos_are_kept_and_tensorboard_has_the_same(tmp_path):
  monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'], videos_kept=2)
  monitor.report('inference_learner/0', {'actor_steps': 40.0, 'environment_frames': 160.0})
  for when, steps in enumerate((3, 20, 30)):
    monitor.video(steps, gif(steps))
    assert monitor.flush()
    for path in (
      path for name in ('videos', 'tensorboard/videos') for path in (tmp_path / name).iterdir()
    ):
      os.utime(path, (1e9 - when, 1e9 - when))  # As on a clock that is set back.

  def kept():
    return [(p.name, p.read_bytes()) for p in map(pathlib.Path, videos.paths(str(tmp_path)))]

  assert kept() == [('000000000020.gif', gif(20)), ('000000000030.gif', gif(30))]
  events = tmp_path / 'tensorboard' / 'videos'
  assert sorted(path.name[-3:] for path in events.iterdir()) == ['020', '030']
  (events / 'events.out.tfevents.1900000000.host.1').touch()  # Of an earlier version.
  monitor.video(25, gif(25))  # As after a resume from an earlier checkpoint.
  monitor.video(25, gif(21))  # A repeated call.
  assert monitor.flush()
  assert kept() == [('000000000020.gif', gif(20)), ('000000000025.gif', gif(21))]
  assert sorted(path.name[-3:] for path in events.iterdir()) == ['020', '025']
  [*_, last] = summaries(os.path.join(tmp_path, 'tensorboard', 'videos'))
  assert (last.step, last.summary.value[0].tag) == (160, 'video')
  image = last.summary.value[0].image
  assert (image.width, image.height, image.encoded_image_string) == (6, 4, gif(21))
