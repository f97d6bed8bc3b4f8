"""Exports that are killed, repeated and continued, to a tracker that counts."""

import os
import subprocess
import sys

import pytest

import watch
from tests.viewing.trackers.runs import GrowingRun
from tests.waiting import DEADLINE
from viewing.trackers import export as exporting
from viewing.trackers.bookmark import Bookmark
from viewing.trackers.records import Media
from viewing.trackers.sink import SinkError


class Tracker:
  """What a tracker has of a run: it keeps the first record of each number."""

  def __init__(self):
    self.records = {}
    self.repeated = 0
    self.outcomes = []
    self.starts = []


class Killed(BaseException):
  """The process has been killed."""


class FakeSink:
  """Sends to a `Tracker`; after `kill_after` records the process is killed."""

  destination = 'here'

  def __init__(self, tracker, kill_after=None, failures=0, keeps=True):
    self.keeps = keeps
    self.tracker = tracker
    self.kill_after = kill_after
    self.failures = failures
    self.closed = False

  def start(self, header, key, run_id):
    self.tracker.starts.append((key, run_id))
    return f'id-{key}', 'somewhere'

  def log(self, records, first):
    for number, record in enumerate(records, first):
      if self.kill_after is not None and len(self.tracker.records) >= self.kill_after:
        raise Killed
      if number in self.tracker.records:
        self.tracker.repeated += 1
        assert self.tracker.records[number] == record
      self.tracker.records.setdefault(number, record)
    if self.failures:
      self.failures -= 1
      raise SinkError('the tracker does not answer.')

  def end(self, outcome):
    self.tracker.outcomes.append(outcome.state)

  def close(self):
    self.closed = True


def seconds(run, begin, end):
  """Adds some seconds of a run."""
  for k in range(begin, end):
    run.report('inference_learner/0', k, episode_return=k)
    run.report('evaluator/0', k, evaluator_return=k)


def export(run, sink, said=None, sleep=lambda seconds: None):
  options = {'every': 5.0, 'axis': 'seconds'}
  bookmark = Bookmark(run.path, 'fake', sink.destination, options)
  bookmark.set_options(options)
  try:
    exporting.export(
      run.path, sink, bookmark, 0.0, (said if said is not None else []).append, sleep
    )
  finally:
    os.close(bookmark._lock)  # As the end of the process does.


def returns(tracker, name='evaluator_return'):
  ordered = (tracker.records[number] for number in sorted(tracker.records))
  return [r.values[name] for r in ordered if not isinstance(r, Media) and name in r.values]


def test_a_finished_run_is_exported_once(tmp_path):
  run, tracker, said = GrowingRun(tmp_path / 'run'), Tracker(), []
  seconds(run, 0, 12)
  run.video(90)
  run.end()
  export(run, FakeSink(tracker), said)
  assert returns(tracker) == list(range(12)) and returns(tracker, 'episode_return') == [2, 7, 10.5]
  assert tracker.outcomes == ['finished'] and len(tracker.records) == 16
  export(run, FakeSink(tracker), said)
  assert len(tracker.starts) == 1 and tracker.repeated == 0
  assert said[1:] == [
    'run: finished, 16 records exported',
    'run: 16 records were exported before; nothing is new',
  ]


def test_a_run_is_followed_until_it_ends(tmp_path):
  run, tracker, pauses = GrowingRun(tmp_path / 'run'), Tracker(), []
  seconds(run, 0, 3)

  def sleep(period):
    pauses.append(len(tracker.records))
    seconds(run, 3 * len(pauses), 3 * len(pauses) + 3)
    if len(pauses) == 3:
      run.end(code=1, finished=False)

  export(run, FakeSink(tracker), sleep=sleep)
  assert returns(tracker) == list(range(12)) and tracker.outcomes == ['failed']
  assert pauses == [3, 7, 10]  # With the first complete means.


@pytest.mark.parametrize('kill_after', (0, 5, 22, 23))  # It sends 23 before the first pause.
def test_a_killed_export_continues_with_the_same_numbers(tmp_path, kill_after):
  run, tracker = GrowingRun(tmp_path / 'run'), Tracker()
  seconds(run, 0, 20)
  with pytest.raises(Killed):
    export(run, FakeSink(tracker, kill_after), sleep=lambda seconds: _raise())
  seconds(run, 20, 30)  # What the run has written meanwhile does not change them.
  run.end()
  export(run, FakeSink(tracker))
  assert returns(tracker) == list(range(30))
  assert returns(tracker, 'episode_return') == [2, 7, 12, 17, 22, 27]
  assert tracker.repeated == kill_after % 23
  assert sorted(tracker.records) == list(range(36))
  (first, none), (second, run_id) = tracker.starts
  assert (none, first, run_id) == ('', second, f'id-{first}')


def test_a_killed_export_to_a_tracker_that_forgets_starts_over(tmp_path, monkeypatch):
  run, said = GrowingRun(tmp_path / 'run'), []
  first, second, third = Tracker(), Tracker(), Tracker()
  seconds(run, 0, 20)
  with monkeypatch.context() as patched, pytest.raises(Killed):
    patched.setattr(FakeSink, 'close', lambda sink: _raise())  # Nothing is done after a kill.
    export(run, FakeSink(first, 5, keeps=False))
  with pytest.raises(KeyboardInterrupt):
    export(run, FakeSink(second, keeps=False), said, sleep=_interrupt)
  run.end()
  export(run, FakeSink(third, keeps=False), said)
  assert len([line for line in said if 'the last export was killed' in line]) == 1
  assert first.starts[0][0] != second.starts[0][0] == third.starts[0][0]
  assert third.starts[0][1] == f'id-{second.starts[0][0]}'
  assert returns(second) == list(range(20))
  assert (min(third.records), returns(third)) == (23, [])  # The last mean; the rest is known.


def _interrupt(seconds):
  raise KeyboardInterrupt


def _raise():
  raise Killed


def test_a_tracker_that_does_not_reply_gets_the_records_later(tmp_path):
  run, tracker, said, sink = GrowingRun(tmp_path / 'run'), Tracker(), [], None
  seconds(run, 0, 5)
  run.end()
  sink = FakeSink(tracker, failures=3)
  export(run, sink, said)
  assert returns(tracker) == list(range(5)) and sink.closed
  assert said.count('the tracker does not answer. It is tried again.') == 1


def test_a_resumed_run_continues_its_export(tmp_path):
  run, tracker = GrowingRun(tmp_path / 'run'), Tracker()
  seconds(run, 0, 7)
  run.end(code=130, finished=False)
  export(run, FakeSink(tracker))
  seconds(run, 7, 10)
  run.end()
  export(run, FakeSink(tracker))
  assert returns(tracker) == list(range(10)) and tracker.outcomes == ['stopped', 'finished']


def test_what_an_export_cannot_do_is_one_sentence(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  kept = Bookmark(run.path, 'fake', 'here', {})
  kept.set_options({'every': 5.0})
  kept.save()
  with pytest.raises(ValueError, match='exported there by another process'):
    Bookmark(run.path, 'fake', 'here', {})
  os.close(kept._lock)
  with pytest.raises(ValueError, match=r'--every=2.0.*has --every=5.0; leave it out'):
    Bookmark(run.path, 'fake', 'here', {'every': 2.0})
  Bookmark(run.path, 'fake', 'elsewhere', {'every': 2.0})  # Another project.
  with pytest.raises(ValueError, match='/proc/trackers cannot be written'):
    Bookmark('/proc', 'fake', 'here', {})


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--every=1'], ['--every', '--to']),
    (['--to=wandb', '--web'], ['--to=wandb', '--web']),
    (['--to=wandb', '--every=-1'], ['--every=-1.0']),
    (['/none', '--to=mlflow'], ['/none', 'no such directory']),
  ],
)
def test_flags_of_an_export_are_checked_before_anything_is_installed(
  tmp_path, capsys, flags, words
):
  run = GrowingRun(tmp_path / 'run')
  assert watch.main([run.path, *flags]) == 2
  captured = capsys.readouterr()
  assert captured.out == '' and captured.err.count('\n') == 1
  assert all(word in captured.err for word in words)


@pytest.mark.parametrize('tracker', ['wandb', 'mlflow'])
def test_without_a_package_index_one_sentence_says_so(tmp_path, capsys, monkeypatch, tracker):
  run = GrowingRun(tmp_path / 'run')
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  monkeypatch.setenv('UV_CACHE_DIR', str(tmp_path / 'uv'))
  monkeypatch.setenv('UV_DEFAULT_INDEX', 'http://127.0.0.1:9/simple')
  monkeypatch.setenv('UV_HTTP_RETRIES', '0')
  assert watch.main([run.path, f'--to={tracker}']) == 2
  error = capsys.readouterr().err
  assert error.startswith(f'error: --to={tracker}: its packages') and error.count('\n') == 1
  assert 'a package index' in error and '127.0.0.1:9' in error
  assert os.listdir(tmp_path / 'cache' / 'launchpod') == []  # Nothing half made is left.


def test_the_exporting_process_needs_no_package_but_absl():
  code = """
import sys
from viewing.trackers import export
print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)
"""
  root = os.path.dirname(watch.__file__)
  process = subprocess.run(
    [sys.executable, '-c', code],
    cwd=root,
    capture_output=True,
    text=True,
    timeout=DEADLINE,
    check=True,
  )
  known = {
    'absl',
    'viewing',
    'launchers',
    'rundir',
    'google',
  }  # A .pth file makes the last, which is empty.
  assert {name for name in process.stdout.split() if not name.startswith('_')} <= known


@pytest.mark.parametrize('content', ['', '[]', '{"format": 0}', '[' * 10_000])
def test_a_damaged_place_of_an_export_is_named(tmp_path, content):
  run, tracker = GrowingRun(tmp_path / 'run'), Tracker()
  run.end()
  export(run, FakeSink(tracker))
  [path] = (tmp_path / 'run' / 'trackers').glob('*.json')
  path.write_text(content)
  with pytest.raises(ValueError, match='delete it to export the run again') as error:
    export(run, FakeSink(tracker))
  assert str(path) in str(error.value)
