import json
import os
import subprocess
import sys
import time
import types

import pytest

import watch
from agents.options import flatten, make
from programs import sebulba
from rundir import node_files, run_directory, run_end, sweep_directory
from rundir.checkpoints import COUNTERS
from rundir.csv_file import CsvWriter
from tests.rundir import drawn
from tests.terminals import FORBIDDEN, HOSTILE, printed_on_terminal
from tests.waiting import DEADLINE
from viewing import liveness, progress
from viewing.trackers import environment


def make_run(path, rows=((1.0, 100.0, -0.5), (3.0, 300.0, 0.5)), **options):
  """Makes the directory of a run that has logged some returns, and has not ended."""
  config = make(sebulba.Config, num_steps=1000, run_dir=str(path), **options).resolve()
  run_directory.create(str(path))
  run_directory.write_record(str(path), 'sebulba', options, flatten(config))
  table = CsvWriter(node_files.csv_path(str(path), 'inference_learner/0'))
  for seconds, steps, value in rows:
    table.write(
      {
        'seconds': seconds,
        'actor_steps': steps,
        'environment_frames': steps,
        'learner_steps': steps / 10,
        'actor_steps_per_second': 50.0,
        'policy_lag_mean': 1.5,
        'episode_return': value,
      }
    )
  return path


def show(capsys, *arguments):
  code = watch.main([str(a) for a in arguments])
  captured = capsys.readouterr()
  assert code == 0, captured.err
  return captured.out


def test_a_finished_run_is_shown_with_its_curve_and_result(finished_run, capsys, monkeypatch):
  monkeypatch.setenv('COLUMNS', '120')
  text = show(capsys, finished_run)
  summary = json.loads((finished_run / 'summary.json').read_text())
  for words in ('(ended)', f'{summary["actor_steps"]:,}', 'learner_steps', 'evaluator', '┤'):
    assert words in text
  assert text.splitlines()[-1] == run_end.result(str(finished_run))


def test_a_running_run_is_followed_to_its_end(tmp_path, capsys, monkeypatch):
  run_dir = make_run(tmp_path / 'run')
  run_directory.record_restart(str(run_dir), 'actor/0')
  read_summary, looks = run_end.read_summary, []

  def read(path):
    looks.append(path)
    if len(looks) == 3:  # The run ends once it has been looked at.
      counts = dict.fromkeys(('actor_steps', 'environment_frames', 'learner_steps'), 1000)
      (run_dir / 'summary.json').write_text(json.dumps({'evaluator_return': 1.0, **counts}))
    return read_summary(path)

  monkeypatch.setattr(run_end, 'read_summary', read)
  text = show(capsys, run_dir, '--period=0.01')
  first, last = text.splitlines()[0], text.splitlines()[-1]
  for words in ('run: ', 'remaining=0:00:07', 'restarts=1', 'progress=30%', 'policy_lag=1.5'):
    assert words in first
  assert last.startswith('done: evaluator_return=1 actor_steps=1000')


def test_a_run_without_a_launcher_is_not_waited_for(tmp_path, capsys, monkeypatch):
  run_dir = make_run(tmp_path / 'run')
  monkeypatch.setattr(liveness, 'SILENT_SECONDS', -1.0)
  assert progress.Progress(str(run_dir)).state == progress.RUNNING  # This process has its lock.
  os.remove(run_dir / '.lock')
  assert 'stopped before its end' in show(capsys, run_dir)


def test_runs_are_shown_side_by_side_with_what_differs(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(liveness, 'SILENT_SECONDS', -1.0)
  runs = [make_run(tmp_path / name, entropy_cost=c) for name, c in (('a', 0.01), ('b', 0.5))]
  for run_dir in runs:
    os.remove(run_dir / '.lock')
  text = show(capsys, *runs)
  rows = {
    words[0]: words[1:] for line in text.splitlines() if (words := line.replace('│', ' ').split())
  }
  assert rows['--entropy_cost'] == ['0.01', '0.5']
  assert rows['actor_steps'] == ['300', '300']
  assert '--batch_size' not in rows and '--run_dir' not in rows
  assert 'a, training' in text and 'b, training' in text


def test_a_run_that_has_measured_nothing_is_starting(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(liveness, 'SILENT_SECONDS', -1.0)
  run_dir = make_run(tmp_path / 'run', rows=())
  os.remove(run_dir / '.lock')
  assert 'starting' in show(capsys, run_dir)


def test_curves_of_several_runs_become_one_picture(tmp_path, capsys, monkeypatch):
  figures = drawn.keep_figures(monkeypatch)
  rows = {'a': [(1.0, 100.0, -0.5), (3.0, 300.0, 0.5)], 'b': [(1.0, 200.0, 0.0), (2.0, 400.0, 1.0)]}
  runs = [make_run(tmp_path / name, rows[name]) for name in rows]
  assert show(capsys, *runs, f'--png={tmp_path / "out.png"}') == ''
  assert (tmp_path / 'out.png').read_bytes().startswith(b'\x89PNG')
  [axes] = figures[0].axes
  assert drawn.legend(axes) == [f'{name}, training, with exploration' for name in rows]
  assert [line.get_xydata().tolist() for line in axes.get_lines()] == [
    [[100.0, -0.5], [300.0, 0.5]],
    [[200.0, 0.0], [400.0, 1.0]],
  ]


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--png=out.gif'], ['--png=out.gif', '.png']),
    (['--png=/proc/none/out.png'], ['--png=/proc/none/out.png', 'cannot be written']),
    (['--period=0'], ['--period=0', 'above 0']),
    (['/none'], ['/none', 'no such directory']),
    ([__file__], ['test_watch.py', 'it is a file']),
    (['--web', '--png=out.png'], ['--web', '--png']),
    (['--web', '--port=1', '--socket=s'], ['--port=1 and --socket']),
  ],
)
def test_runs_that_cannot_be_watched_are_rejected_in_one_sentence(tmp_path, capsys, flags, words):
  run_dir = make_run(tmp_path / 'run')
  assert watch.main([str(run_dir), *flags]) == 2
  captured = capsys.readouterr()
  assert captured.out == ''
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in words:
    assert word in captured.err


@pytest.mark.parametrize('ahead', [3600.0, 1e9])
def test_a_time_in_the_future_is_not_waited_for(tmp_path, capsys, monkeypatch, ahead):
  """As after a clock was set back, or of a file server whose clock is ahead."""
  monkeypatch.setattr(liveness, 'SILENT_SECONDS', 0.05)
  run_dir = make_run(tmp_path / 'run')
  os.remove(run_dir / '.lock')
  for file in (run_dir / 'config.json', *(run_dir / 'logs').iterdir()):
    os.utime(file, (time.time() + ahead,) * 2)
  assert progress.Progress(str(run_dir)).state == progress.RUNNING  # It may have been this moment.
  assert 'stopped before its end' in show(capsys, run_dir, '--period=0.01')


def test_a_look_reads_only_what_is_new(tmp_path):
  run_dir = make_run(tmp_path / 'run')
  run = progress.Progress(str(run_dir))
  assert run.training == [(100, -0.5), (300, 0.5)]
  path = run_dir / 'logs' / 'inference_learner-0.csv'
  path.write_bytes(path.read_bytes().replace(b'-0.5', b'-9.9'))
  table = CsvWriter(str(path))
  table.write({'seconds': 5.0, 'environment_frames': 500.0, 'episode_return': 1.5})
  run.update()
  assert run.training == [(100, -0.5), (300, 0.5), (500, 1.5)]
  assert run.status['elapsed'] == 5.0 and run.status['first_actor_steps'] == 100
  assert run.status['latest']['inference_learner/0']['policy_lag_mean'] == 1.5


def test_no_file_that_a_run_names_is_run(tmp_path):
  run_dir, marker = make_run(tmp_path / 'run'), tmp_path / 'marker'
  own = tmp_path / 'own.py'
  own.write_text(f'open({str(marker)!r}, "w").close()\ndef make(*args): pass\n')
  record = json.loads((run_dir / 'config.json').read_text())
  record['program'] = record['config']['env'] = f'{own}:make'
  (run_dir / 'config.json').write_text(json.dumps(record))
  assert progress.Progress(str(run_dir)).program == f'{own}:make'
  assert not marker.exists()


@pytest.mark.parametrize('closed', ['the reader has gone', 'there is no stdout'])
def test_a_command_without_a_reader_ends_without_a_traceback(tmp_path, closed):
  run_dir = make_run(tmp_path / 'run')
  os.remove(run_dir / '.lock')
  (run_dir / 'summary.json').write_text(
    json.dumps(dict.fromkeys(('evaluator_return', *COUNTERS), 1000))
  )
  read, write = os.pipe()
  os.close(read)
  gone = closed == 'the reader has gone'
  process = subprocess.run(
    ['sh', '-c', f'exec "$@" {"" if gone else ">&-"}', '-', sys.executable, 'watch.py', run_dir],
    cwd=os.path.dirname(watch.__file__),
    stdout=write,
    stderr=subprocess.PIPE,
    text=True,
    timeout=DEADLINE,
  )
  os.close(write)
  assert process.stderr == '' and process.returncode == (141 if gone else 0)


def _make_sweep(path, trials):
  """Makes the directory of a sweep over --entropy_cost with two seeds."""
  path.mkdir()
  flags = [{'entropy_cost': str(trial / 10)} for trial in range(1, trials + 1)]
  sweep_directory.write(str(path), sweep_directory.Record({}, flags))
  for trial in range(1, trials + 1):
    for seed in (1, 2):
      run_dir = path / f'trial_{trial}' / f'seed_{seed}'
      make_run(run_dir, entropy_cost=trial / 10, seed=seed)
      os.remove(run_dir / '.lock')
  return path


def test_a_sweep_is_shown_with_a_row_for_each_of_many_runs(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(liveness, 'SILENT_SECONDS', -1.0)
  monkeypatch.setenv('COLUMNS', '120')
  text = show(capsys, _make_sweep(tmp_path / 'sweep', 4))
  rows = [
    line.replace('│', ' ').split() for line in text.splitlines() if line.startswith('│ trial')
  ]
  assert [row[:4] for row in rows] == [
    [f'trial_{trial}/seed_{seed}', 'stopped', f'{trial / 10}', f'{seed}']
    for trial in (1, 2, 3, 4)
    for seed in (1, 2)
  ]
  assert 'episode return (raw), 6 of 8 runs' in text
  assert text.count('stopped before its end') == 8


def test_runs_that_a_sweep_begins_are_shown_until_it_ends(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(liveness, 'SILENT_SECONDS', -1.0)
  directory = tmp_path / 'sweep'
  directory.mkdir()
  sweep_directory.write(str(directory), sweep_directory.Record({}, []))
  is_running, looks = sweep_directory.is_running, []

  def look(path):
    looks.append(path)
    if len(looks) == 2:
      os.remove(make_run(directory / 'seed_1') / '.lock')
    return len(looks) < 4 or is_running(path)

  monkeypatch.setattr(sweep_directory, 'is_running', look)
  text = show(capsys, directory, '--period=0.01')
  assert len(looks) == 4 and 'seed_1: stopped before its end' in text


def test_runs_that_a_sweep_begins_are_exported_until_it_ends(tmp_path, monkeypatch):
  directory, looks, exported = tmp_path / 'sweep', [], []
  directory.mkdir()
  sweep_directory.write(str(directory), sweep_directory.Record({}, []))

  def look(path):
    looks.append(path)
    if len(looks) in (2, 4):
      make_run(directory / f'seed_{len(looks) // 2}')
    return len(looks) < 5

  def start(command, **options):
    exported.append(os.path.basename(command[-1]))
    return types.SimpleNamespace(wait=lambda: 3 if command[-1].endswith('2') else 0)

  monkeypatch.setattr(sweep_directory, 'is_running', look)
  monkeypatch.setattr(environment, 'python', lambda tracker, say: sys.executable)
  monkeypatch.setattr(environment, 'subprocess', types.SimpleNamespace(Popen=start, DEVNULL=None))
  assert watch.main([str(directory), '--to=mlflow', '--period=0.001']) == 3
  assert exported == ['seed_1', 'seed_2'] and len(looks) == 5


@pytest.mark.parametrize('flags', [['--web'], ['--stacks'], ['--to=mlflow'], ['--png=mine.png']])
def test_a_sweep_without_runs_has_no_page_and_no_curves_yet(tmp_path, capsys, flags):
  directory = tmp_path / 'sweep'
  directory.mkdir()
  sweep_directory.write(str(directory), sweep_directory.Record({}, []))
  assert watch.main([str(directory), *flags]) == 2
  assert 'has no runs yet; wait until the first has begun' in capsys.readouterr().err


@pytest.mark.parametrize('count', [1, 2, 5])
def test_names_in_a_run_directory_do_not_control_the_terminal(tmp_path, count):
  runs = []
  for i in range(count):
    run_dir = make_run(tmp_path / str(i))
    record = json.loads((run_dir / 'config.json').read_text())
    record['program'] = record['config']['env'] = HOSTILE
    record['config']['core'] = f'{HOSTILE}[/link]{i}'
    (run_dir / 'config.json').write_text(json.dumps(record))
    counts = dict.fromkeys(('actor_steps', 'environment_frames', 'learner_steps'), 1000)
    (run_dir / 'summary.json').write_text(json.dumps({'evaluator_return': 1.0, **counts}))
    runs.append(run_dir.rename(tmp_path / f'[x] {HOSTILE} {i}'))
  code, printed = printed_on_terminal('watch.py', *map(str, runs))
  assert code == 0 and b'pwned' in printed, printed
  assert not [each for each in FORBIDDEN if each in printed], printed
