"""The sweep over bsuite, on few episodes."""

import csv
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest
from bsuite import sweep as bsuite_ids

from benchmarks import bsuite as sweeps
from benchmarks.running import ROOT, processes
from environments.bsuite_record import csv_path
from rundir import directory_lock
from tests.waiting import DEADLINE, alive, wait_until

SMALL = ['--mlp_sizes=16', '--batch_size=2', '--unroll_length=5']


def start(results, ids, *flags):
  """Starts a sweep of 12 episodes for each id."""
  arguments = [f'--results={results}', f'--ids={ids}', '--episodes=12', '--jobs=2', *flags]
  return subprocess.Popen(
    [sys.executable, '-m', 'benchmarks.bsuite', *arguments],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
  )


def wait_for(condition, process):
  """Polls until a function returns something true, which is returned."""
  return wait_until(condition, alive(process), 120, poll=0.05)


def test_a_sweep_of_r2d2_has_the_values_of_the_presets_length_not_of_an_endless_run():
  options = sweeps.Sweep('r2d2', [], 12).options_set_by_rules('catch/0')
  assert options == [
    '--min_replay_size=62',
    '--samples_per_insert=8.0',
    '--target_update_period=23',
  ]
  assert sweeps.Sweep('sebulba', [], 12).options_set_by_rules('catch/0') == []


@pytest.mark.nightly
def test_a_sweep_is_stopped_continues_lists_failures_and_keeps_finished_runs(tmp_path, capsys):
  results = str(tmp_path)
  process = start(results, 'memory_len/0', '--', *SMALL)
  children = wait_for(lambda: psutil.Process(process.pid).children(recursive=True), process)
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=DEADLINE)
  assert process.returncode == 143
  assert psutil.wait_procs(children, timeout=DEADLINE)[1] == []

  # What is in the place of its run directory makes launch.py refuse catch/1.
  (tmp_path / 'runs' / 'catch-1.1').mkdir()
  (tmp_path / 'runs' / 'catch-1.1' / 'obstacle').touch()
  process = start(results, 'memory_len/0,catch/1', '--', *SMALL)
  output, errors = process.communicate(timeout=DEADLINE)
  assert process.returncode == 1, output + errors
  assert 'failed: 1 of 2 ids' in errors
  assert 'catch/1: error: --run_dir=' in errors and f'({tmp_path}/runs/catch-1.1.log)' in errors
  assert "these are not bsuite's results" in output
  scores = re.search(r'^memory_len +[01]\.000 +1 of (\d+)   \(fewer', output, re.MULTILINE)
  assert int(scores[1]) == len(bsuite_ids.MEMORY_LEN)
  assert processes(results) == []
  path = csv_path(results, 'memory_len/0')
  with open(path) as f:
    rows = list(csv.DictReader(f))
  assert [int(row['episode']) for row in rows] == [*range(1, 11), 12]
  assert int(rows[-1]['steps']) == 24

  before = os.stat(path).st_mtime_ns
  common = sweeps.Sweep('sebulba', SMALL, 12)
  assert sweeps.run(common, results, ['memory_len/0'], jobs=1) == []
  assert capsys.readouterr().out == '1 of 1 ids are already done\n'
  assert os.stat(path).st_mtime_ns == before


def test_patterns_name_ids_in_the_order_of_bsuite():
  assert sweeps.matching(['memory_len/1?', 'catch/0']) == [
    'catch/0',
    *(f'memory_len/{i}' for i in range(10, 20)),
  ]
  assert len(sweeps.matching(['*'])) == 468
  with pytest.raises(ValueError, match=r"--ids: 'memory_lem/\*' names no id.*memory_len/\*"):
    sweeps.matching(['catch/0', 'memory_lem/*'])


@pytest.mark.parametrize(
  'program, flags, words',
  [
    ('anakin', [], '--program=anakin has no environments of bsuite'),
    ('r2d2', ['--core=lstm', '--num_actors=4'], '--num_actors after -- is set by the sweep'),
    ('r2d2', ['-env=catch'], '--env after -- is set by the sweep'),
    ('r2d2', ['--nodry_run'], '--nodry_run after -- is set by the sweep'),
  ],
)
def test_ids_that_cannot_be_swept_are_rejected(program, flags, words):
  with pytest.raises(ValueError, match=words):
    sweeps.Sweep(program, flags, 0).check()


def test_a_directory_has_the_results_of_one_sweep(tmp_path, monkeypatch):
  directory = str(tmp_path / 'results')
  mine = sweeps.Sweep('r2d2', ['--core=none'], 0)
  mine.take(directory)
  with pytest.raises(ValueError, match='is in use by a sweep that is still running'):
    mine.take(directory)
  monkeypatch.setattr(directory_lock, 'take', lambda path: None)
  mine.take(directory)
  for other in (
    sweeps.Sweep('r2d2', ['--core=none'], 20),
    sweeps.Sweep('r2d2', [], 0),
    sweeps.Sweep('sebulba', ['--core=none'], 0),
  ):
    with pytest.raises(
      ValueError, match='has results of --program=r2d2 -- --core=none; give the same'
    ):
      other.take(directory)
