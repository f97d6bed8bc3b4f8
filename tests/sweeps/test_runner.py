"""Sweeps with a launch.py that takes no time: what is run, kept, resumed, stopped and recorded."""

import csv
import errno
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from benchmarks.running import processes
from rundir import directory_lock, sweep_directory
from rundir.sweep_directory import DONE, FAILED, STOPPED
from sweeps import commands, prepare, report, runner, search
from sweeps.metrics import Metric
from tests.sweeps.conftest import FILE
from tests.waiting import wait_until


@pytest.fixture
def run(tmp_path, quick_launch, capsys):
  """Returns a function that runs a sweep in `tmp_path / 'out'`; returns exit code, rows and lines."""
  directory = tmp_path / 'out'

  def run(sweep, jobs=2, **options):
    if directory.exists():
      (directory / '.lock').unlink()  # This process holds it until its end.
    record = prepare.claim(sweep, str(directory))
    capsys.readouterr()
    code, rows, run.last = runner.run(sweep, str(directory), record, jobs, **options)
    return code, rows, capsys.readouterr().out.splitlines()

  run.directory = directory
  return run


def _commands(run_dir):
  return json.loads((run_dir / 'config.json').read_text())['commands']


def _begun(lines):
  return sorted(line.split(':')[0] for line in lines if ': runs' in line or ': resumes' in line)


def test_every_trial_is_run_with_every_seed_and_compared(parse, run):
  code, rows, lines = run(parse())
  assert code == 0
  assert _begun(lines) == [f'trial {t} seed {s}' for t in (1, 2) for s in (1, 2)]
  assert 'trial 2 seed 1: evaluator_return 0.79, ' in ''.join(lines)
  assert [(row.number, row.values) for row in rows] == [
    (1, {'learning_rate': '0.1'}),
    (2, {'learning_rate': '0.2'}),
  ]
  assert [round(float(row.estimate.value), 3) for row in rows] == [0.885, 0.785]
  (first,) = _commands(run.directory / 'trial_2' / 'seed_1')
  run_dir = run.directory / 'trial_2' / 'seed_1'
  assert first[1:] == [
    *('--program=anakin', '--num_steps=1000', '--learning_rate=0.2', '--seed=1'),
    f'--run_dir={run_dir}',
  ]
  assert (run.directory / 'trial_2' / 'seed_1.log').read_text() == 'done\n'
  with open(run.directory / 'table.csv') as f:
    best = next(csv.DictReader(f))
  assert (best['trial'], best['learning_rate'], best['seed_1'], best['seed_2']) == (
    *('1', '0.1', '0.89', '0.88'),
  )
  text = (run.directory / 'table.md').read_text()
  assert '| 1 | 1 | 0.1 | 0.885 (0.88 to 0.89) | 2 of 2 |' in text
  assert '    launch.py --program=anakin --num_steps=1000 --learning_rate=0.1\n' in text
  assert '![Learning curves](curves.svg)' in text
  svg = (run.directory / 'curves.svg').read_text()
  assert 'trial 2: learning_rate=0.2, 2 seeds' in svg


def test_the_same_command_again_runs_nothing_and_a_larger_space_only_what_is_new(parse, run):
  run(parse())
  assert _begun(run(parse())[2]) == []
  code, rows, lines = run(parse(space={'learning_rate': ['0.3', '0.2', '0.1']}, seeds=3))
  assert code == 0
  new = ['trial 1 seed 3', 'trial 2 seed 3', *(f'trial 3 seed {s}' for s in (1, 2, 3))]
  assert _begun(lines) == new
  assert [row.number for row in rows] == [1, 2, 3]
  # Trials that are no longer of the space stay on the disk.
  code, rows, lines = run(parse(space={'learning_rate': ['0.2']}, seeds=1))
  assert (code, _begun(lines), [row.number for row in rows]) == (0, [], [2])


def test_runs_that_share_other_flags_are_not_mixed(parse, run):
  run(parse())
  with pytest.raises(ValueError, match='has runs with --num_steps=1000, and now there is --num_st'):
    run(parse(flags={'program': 'anakin', 'num_steps': 2000}))
  with pytest.raises(ValueError, match='has runs with no --env, and now there is --env=catch'):
    run(parse(flags={'program': 'anakin', 'num_steps': 1000, 'env': 'catch'}))


def test_a_failed_run_is_recorded_with_its_reason_and_the_others_go_on(parse, run):
  sweep = parse(space={'learning_rate': ['0.5', '0.1']})
  code, rows, lines = run(sweep)
  assert code == 1 and [row.number for row in rows] == [2, 1]
  why = 'launch.py ended with exit code 1: ValueError: it has blown up'
  assert f'trial 1 seed 2: failed, {why}' in lines
  outcome = sweep_directory.outcome(str(run.directory / 'trial_1' / 'seed_2'))
  assert (outcome.state, outcome.reason) == (FAILED, why)
  text = (run.directory / 'table.md').read_text()
  assert '| - | 1 | 0.5 | - | 0 of 2 |' in text and f'- trial 1 seed 2: {why}\n' in text
  # It is not run again, unless the user says so.
  code, _, lines = run(sweep)
  assert (code, _begun(lines)) == (1, [])
  code, _, lines = run(sweep, retry_failed=True)
  assert (code, _begun(lines)) == (1, ['trial 1 seed 1', 'trial 1 seed 2'])
  assert len(list((run.directory / 'trial_1').glob('seed_1.set-aside-*'))) == 1


def test_a_run_that_takes_too_long_is_stopped_and_may_continue_when_retried(
  parse, run, monkeypatch
):
  def seconds(command):  # It is too long once the run has begun.
    return 1.0 if os.path.getsize(command.log) else 0.0

  monkeypatch.setattr(commands.Command, 'seconds', seconds)
  sweep = parse(space={'learning_rate': ['0.7']}, seeds=1, time_limit=0.5)
  code, _, lines = run(sweep)
  assert code == 1
  assert 'trial 1 seed 1: failed, it was stopped after 0.5 s, the time_limit' in lines
  code, _, lines = run(parse(space={'learning_rate': ['0.7']}, seeds=1), retry_failed=True)
  assert code == 0 and 'trial 1 seed 1: resumes' in ''.join(lines)
  run_dir = run.directory / 'trial_1' / 'seed_1'
  assert sweep_directory.outcome(str(run_dir)).seconds == 2.0  # Of both commands.


@pytest.mark.slow
@pytest.mark.parametrize('number, expected', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_sweep_ends_its_programs_and_continues_where_it_was(parse, run, number, expected):
  sweep = parse(space={'learning_rate': ['0.7', '0.1']}, flags=FILE['flags'] | {'isolate': 'no'})
  logs = [run.directory / 'trial_1' / f'seed_{seed}.log' for seed in (1, 2)]

  def interrupt():
    wait_until(lambda: all(log.exists() and log.read_text() for log in logs))
    os.kill(os.getpid(), number)

  thread = threading.Thread(target=interrupt)
  thread.start()
  code, rows, lines = run(sweep)
  thread.join()
  assert code == expected and all(row.estimate is None for row in rows)
  assert 'stopping 2 runs' in lines[-1]
  for seed in (1, 2):
    run_dir = run.directory / 'trial_1' / f'seed_{seed}'
    outcome = sweep_directory.outcome(str(run_dir))
    assert outcome.state == STOPPED and outcome.seconds > 0
    assert processes(str(run_dir)) == []
  code, rows, lines = run(sweep)
  assert code == 0 and all(row.valued == 2 for row in rows)
  first, second = _commands(run.directory / 'trial_1' / 'seed_2')
  run_dir = run.directory / 'trial_1' / 'seed_2'
  # A flag that the run does not record is given again.
  assert second[1:] == [f'--resume={run_dir}', '--isolate=no'] and '--isolate=no' in first
  assert sweep_directory.outcome(str(run_dir)).seconds > outcome.seconds


def test_a_run_without_a_checkpoint_starts_over(parse, run):
  run_dir = run.directory / 'trial_1' / 'seed_1'
  sweep = parse(space={'learning_rate': ['0.1']}, seeds=1)
  run(sweep)
  (run_dir / 'summary.json').unlink()
  (run_dir.parent / 'seed_1.json').unlink()  # Its launcher was killed.
  code, _, lines = run(sweep)
  assert code == 0 and 'begins again, without a checkpoint' in lines[0]
  assert len(_commands(run_dir)) == 1
  assert (run_dir.parent / 'seed_1.set-aside-1' / 'seed_1' / 'config.json').exists()


def test_a_run_that_ended_unseen_is_kept(parse, run):
  sweep = parse(space={'learning_rate': ['0.1']}, seeds=1)
  run(sweep)
  run_dir = run.directory / 'trial_1' / 'seed_1'
  (run_dir.parent / 'seed_1.json').unlink()
  code, rows, lines = run(sweep)
  assert (code, _begun(lines), rows[0].valued) == (0, [], 1)
  assert sweep_directory.outcome(str(run_dir)).state == DONE


def test_a_program_without_a_summary_has_done_its_work_where_it_ended_well(parse, run):
  sweep = parse(space={'learning_rate': ['0.95']}, metric='evaluator/evaluator_return')
  code, rows, _ = run(sweep)
  assert (code, rows[0].valued) == (0, 2)
  run_dir = run.directory / 'trial_1' / 'seed_1'
  (run_dir.parent / 'seed_1.json').unlink()  # The sweep was killed before it was recorded.
  code, rows, lines = run(sweep)
  assert (code, _begun(lines), rows[0].valued) == (0, [], 2)


def test_a_run_of_another_command_is_left_alone(parse, run):
  run_dir = run.directory / 'trial_1' / 'seed_1'
  run_dir.mkdir(parents=True)
  sweep_directory.write(
    str(run.directory), sweep_directory.Record(dict(parse().flags), [{'learning_rate': '0.1'}])
  )
  (run.directory / '.lock').touch()
  directory_lock.take(str(run_dir))
  code, rows, lines = run(parse(space={'learning_rate': ['0.1']}))
  assert code == 1 and 'trial 1 seed 1: skipped' in lines[0]
  assert rows[0].valued == 1


def test_a_metric_that_the_first_run_lacks_ends_the_sweep(parse, run, capsys):
  sweep = parse(metric='evaluator/evaluator_retur')
  record = prepare.claim(sweep, str(run.directory))
  code, _, _ = runner.run(sweep, str(run.directory), record, 1)
  assert code == 2
  said = capsys.readouterr().err
  assert said.startswith('error: mine.yaml: metric: ') and 'did you mean evaluator_return?' in said
  # With the metric corrected, the finished run is kept.
  code, _, lines = run(parse(metric='evaluator/evaluator_return', metric_of='mean'))
  assert code == 0 and len(_begun(lines)) == 3
  assert 'mean of evaluator/evaluator_return 0.44, ' in ''.join(lines)


def test_a_directory_is_claimed_by_one_sweep_alone(parse, run, tmp_path):
  (tmp_path / 'other').mkdir()
  (tmp_path / 'other' / 'file').touch()
  with pytest.raises(ValueError, match='other is not empty, and no sweep; name a new directory'):
    prepare.claim(parse(), str(tmp_path / 'other'))
  prepare.claim(parse(), str(run.directory))
  with pytest.raises(ValueError, match='is in use by a sweep that is still running'):
    prepare.claim(parse(), str(run.directory))
  with pytest.raises(ValueError, match='cannot be written'):
    prepare.claim(parse(), '/proc/none/x')


@pytest.mark.slow
def test_programs_of_a_killed_sweep_are_killed(quick_launch, tmp_path):
  file, directory = tmp_path / 'mine.yaml', tmp_path / 'out'
  file.write_text('flags: {program: anakin}\nspace: {learning_rate: [0.7]}\nseeds: 2\njobs: 2\n')
  code = (
    'import sys, sweep; from sweeps import runner; '
    f'runner._LAUNCH = {str(quick_launch)!r}; sweep.main(sys.argv[1:])'
  )
  process = subprocess.Popen(
    [sys.executable, '-c', code, str(file), f'--run_dir={directory}'],
    cwd=commands.ROOT,
    stdout=subprocess.DEVNULL,
  )
  try:
    run_dirs = [directory / 'trial_1' / f'seed_{seed}' for seed in (1, 2)]
    logs = [run_dir.with_suffix('.log') for run_dir in run_dirs]
    wait_until(lambda: all(log.exists() and log.read_text() for log in logs))
  finally:
    process.kill()
    process.wait()
  wait_until(lambda: not any(processes(str(run_dir)) for run_dir in run_dirs))
  assert not (directory / 'trial_1' / 'seed_1.json').exists()


class Suggested(search.Search):
  """Suggests rates one after the other, and keeps what it is told."""

  def __init__(self, rates):
    self.rates, self.told = list(rates), []

  def begin(self, recorded):
    self.rates = self.rates[len(recorded) :]
    return list(range(len(recorded)))

  def next(self):
    return {'learning_rate': self.rates.pop(0)} if self.rates else None

  def tell(self, values, result):
    self.told.append((values['learning_rate'], result and round(result, 4)))


def test_a_search_receives_the_mean_of_each_trial_and_the_failures(parse, run, monkeypatch):
  made = Suggested([0.1, 0.5, -1.0, 0.2, 0.4])
  sweep = parse(space={'learning_rate': {'range': [-2, 1]}}, search='random', trials=5)
  for name, value in (('make_search', lambda: made), ('chosen', False)):
    object.__setattr__(sweep, name, value)
  code, _, lines = run(sweep, jobs=1)
  assert code == 1
  told = [(0.1, 0.885), (0.5, None), (-1.0, None), (0.2, 0.785), (0.4, None)]
  assert made.told == told  # Of 0.4 one seed has failed.
  refused = [line for line in lines if line.startswith('trial 3')]
  assert len(refused) == 2 and all('--learning_rate' in line for line in refused)
  assert not (run.directory / 'trial_3' / 'seed_1').exists()
  # What was recorded is reported again when the sweep continues.
  made = Suggested([0.1, 0.5, -1.0, 0.2, 0.4, 0.3])
  run(sweep, jobs=1)
  assert made.told == [*told, (0.3, 0.685)]


def _full(monkeypatch, module, name, failures, then=lambda: None):
  """Makes a function of a module fail as on a full disk; calls `then` at each failure."""
  write, left = getattr(module, name), iter(range(failures))

  def fail(*args, **kwargs):
    if next(left, None) is None:
      return write(*args, **kwargs)
    then()
    raise OSError(errno.ENOSPC, 'No space left on device', 'the-file')

  monkeypatch.setattr(module, name, fail)
  monkeypatch.setattr(runner, '_RETRY_SECONDS', 0.0)


def test_a_sweep_waits_while_the_disk_is_full(parse, run, monkeypatch):
  _full(monkeypatch, sweep_directory, 'write_outcome', failures=3)
  code, rows, lines = run(parse(space={'learning_rate': ['0.1']}, seeds=1))
  assert code == 0 and rows[0].estimate is not None
  warning = (
    "warning: [Errno 28] No space left on device: 'the-file'; the sweep waits until it can write"
  )
  assert lines.count(warning) == 1, lines


def test_a_sweep_that_waits_for_a_full_disk_can_be_stopped(parse, run, monkeypatch):
  stop = lambda: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
  _full(monkeypatch, sweep_directory, 'write_outcome', failures=1000, then=stop)
  code, _, _ = run(parse(space={'learning_rate': ['0.1']}, seeds=1))
  assert code == 143
  monkeypatch.undo()


@pytest.mark.parametrize(
  'failures, last', [(1, 'wrote '), (100, 'warning: the table is out of date')]
)
def test_a_table_that_cannot_be_written_ends_no_sweep(parse, run, monkeypatch, failures, last):
  _full(monkeypatch, report, 'write', failures)
  code, rows, lines = run(parse(), jobs=1)
  assert code == 0 and len(rows) == 2 and run.last.startswith(last)
  assert sum('the table is out of date' in line for line in lines) == min(failures, 4)
  monkeypatch.undo()


def test_metrics_are_read_from_the_summary_and_the_logs(parse, run):
  run(parse(space={'learning_rate': ['0.1']}, seeds=1))
  run_dir = str(run.directory / 'trial_1' / 'seed_1')
  column = 'evaluator/evaluator_return'
  for metric, value in (
    (Metric(), 0.89),
    (Metric('learner_steps'), 1000),
    (Metric(column), 0.89),
    (Metric(column, 'mean'), 0.445),
    (Metric(column, 'min'), 0.0),
    (Metric(column, 'max'), 0.89),
  ):
    assert metric.read(run_dir) == pytest.approx(value), metric
