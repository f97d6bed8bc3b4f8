"""sweep.py as a user runs it, with real programs: stopped, continued, compared, watched."""

import csv
import os
import re
import signal
import subprocess
import sys

import pytest

import watch
from benchmarks.running import processes
from rundir import curves, sweep_directory
from tests.programs_under_test import ENVIRONMENT, ROOT
from tests.waiting import DEADLINE, wait_until

FILE = """
title: Catch
flags:
  program: anakin
  env: catch
  num_steps: 200_000
  # A single environment and an update in each call: seconds for these steps.
  num_envs: 1
  updates_per_call: 1
  mlp_sizes: [16]
  eval_episodes: 10
space:
  learning_rate: [1e-3, 1e-2]
jobs: 2
"""


def start(*flags):
  return subprocess.Popen(
    [sys.executable, 'sweep.py', *map(str, flags)],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env={**os.environ, **ENVIRONMENT},
  )


def finish(process):
  """Returns exit code, stdout and stderr; ends the command if it does not end in time."""
  try:
    output, errors = process.communicate(timeout=DEADLINE)
  finally:
    process.terminate()
    process.wait()
  return process.returncode, output, errors


@pytest.mark.program
def test_a_sweep_is_stopped_continued_and_compared(tmp_path, capsys):
  file, directory = tmp_path / 'catch.yaml', tmp_path / 'out'
  file.write_text(FILE)
  run_dirs = [directory / f'trial_{trial}' / 'seed_1' for trial in (1, 2)]

  process = start(file, f'--run_dir={directory}')
  try:
    wait_until(
      lambda: all(curves.read(str(run_dir), 'anakin/0', 'actor_steps') for run_dir in run_dirs),
      check=lambda: process.poll() is None or pytest.fail(str(finish(process))),
      deadline=DEADLINE,
    )
    process.send_signal(signal.SIGINT)
  finally:
    code, output, errors = finish(process)
  assert code == 130, output + errors
  assert processes(str(directory)) == []
  assert len(sweep_directory.runs(str(directory))) == 2
  for run_dir in run_dirs:
    outcome = sweep_directory.outcome(str(run_dir))
    assert outcome.state == sweep_directory.STOPPED
    assert list((run_dir / 'checkpoints').glob('*.checkpoint'))

  code, output, errors = finish(start(file, f'--run_dir={directory}'))
  assert code == 0, output + errors
  assert len(re.findall(r'^trial \d seed 1: resumes --learning_rate=1e-\d, ', output, re.M)) == 2
  with open(directory / 'table.csv') as f:
    rows = list(csv.DictReader(f))
  assert [row['rank'] for row in rows] == ['1', '2']
  returns = [float(row['mean']) for row in rows]
  assert 1 >= returns[0] >= returns[1] >= -1
  assert float(rows[0]['seconds']) > outcome.seconds / 2
  assert f'| 1 | {rows[0]["trial"]} | {rows[0]["learning_rate"]} | ' in output
  assert '<svg' in (directory / 'curves.svg').read_text()
  assert f'trial {rows[0]["trial"]}: ' in (directory / 'curves.svg').read_text()

  # Nothing is left to do, and the table needs no run.
  (directory / 'table.md').unlink()
  code, again, _ = finish(start(file, f'--run_dir={directory}', '--table_only'))
  assert code == 0 and again.strip() in output
  assert (directory / 'table.md').exists()

  assert watch.main([str(directory)]) == 0
  watched = capsys.readouterr().out
  assert 'trial_1/seed_1' in watched and watched.count('done: evaluator_return=') == 2


@pytest.mark.slow
@pytest.mark.parametrize(
  'text, flags, said',
  [
    (FILE, ['--jobs=-1'], '--jobs=-1 must be at least 1'),
    (FILE, ['--table_only'], 'has no sweep yet; leave --table_only out'),
    (
      FILE.replace('num_envs: 1', 'num_envs: 0'),
      [],
      'with --learning_rate=1e-3: --num_envs is 0: set it to 1 or more',
    ),
    (FILE + 'time_limt: 3', [], "there is no entry 'time_limt'; did you mean time_limit?"),
  ],
)
def test_errors_are_reported_before_anything_is_launched(tmp_path, text, flags, said):
  file, directory = tmp_path / 'catch.yaml', tmp_path / 'out'
  file.write_text(text)
  code, output, errors = finish(start(file, f'--run_dir={directory}', *flags))
  assert (code, output) == (2, '')
  assert errors.startswith('error: ') and said in errors and errors.count('\n') == 1
  assert not directory.exists()


@pytest.mark.slow
@pytest.mark.parametrize('flag', ['--run_dir', '--dir'])  # The second is its earlier name.
def test_a_dry_run_lists_the_trials_and_starts_nothing(tmp_path, flag):
  file, directory = tmp_path / 'catch.yaml', tmp_path / 'out'
  file.write_text(FILE)
  code, output, errors = finish(start(file, f'{flag}={directory}', '--dry_run'))
  assert code == 0, errors
  assert f'directory: {directory}\n' in output
  assert 'trials: a grid of 2, 2 runs at once (as ' in output
  assert 'trial 2: launch.py --program=anakin --env=catch' in output
  assert output.splitlines()[-1].endswith(' --learning_rate=1e-2')
  assert not directory.exists()
