"""The command on a list of its own: stopped, continued, and rendered elsewhere."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from benchmarks.results import records
from benchmarks.running import ROOT, processes
from rundir import curves
from tests.benchmarks import smoke
from tests.programs_under_test import ENVIRONMENT
from tests.waiting import alive, wait_until

ROWS = """
from benchmarks.results.declared import Launch, Task

# A single environment and an update in each call take seconds for these steps.
FLAGS = ('--num_envs=1', '--updates_per_call=1', '--mlp_sizes=16', '--eval_episodes=10')
TASKS = (
  Task(
    name='catch',
    title='Catch',
    about='',
    rows=(
      Launch(
        label='wrong', program='anakin', env='catch', budget=9, seeds=(1,), flags=('--num_envs=0',)
      ),
      Launch(label='anakin', program='anakin', env='catch', budget=80_000, seeds=(4,), flags=FLAGS),
    ),
    thresholds=(-2.0,),
    episodes=10,
  ),
)
"""
DEADLINE_SECONDS = 120.0


def start(*flags):
  """Starts the command."""
  return subprocess.Popen(
    [sys.executable, '-m', 'benchmarks.results', *flags],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env={**os.environ, **ENVIRONMENT},
  )


def finish(process):
  """Returns exit code, stdout and stderr of a command; ends it if it does not end in time."""
  try:
    output, errors = process.communicate(timeout=DEADLINE_SECONDS)
  finally:
    process.terminate()  # It ends what it has launched.
    process.wait()
  return process.returncode, output, errors


@pytest.mark.program
def test_a_row_is_stopped_continued_recorded_and_rendered_elsewhere(tmp_path):
  (tmp_path / 'rows.py').write_text(ROWS)
  runs, docs = tmp_path / 'runs', tmp_path / 'docs'
  flags = [f'--rows={tmp_path / "rows.py"}', f'--runs={runs}', f'--docs={docs}']
  run_dir = runs / 'catch' / 'anakin' / '4'

  process = start('*/anakin', *flags)
  wait_until(
    lambda: curves.read(str(run_dir), 'anakin/0', 'actor_steps'),
    alive(process, lambda: finish(process)),
    DEADLINE_SECONDS,
    poll=0.05,
  )
  process.send_signal(signal.SIGINT)
  code, output, errors = finish(process)
  assert code == 130, output + errors
  assert processes(str(run_dir)) == []
  assert list((run_dir / 'checkpoints').glob('*.checkpoint'))
  assert '| `anakin` | not run | 0 of 1 |' in (docs / 'index.md').read_text()
  assert not (docs / 'data').exists()

  # The row before it fails, and this one continues all the same.
  code, output, errors = finish(start('--keep_policies', *flags))
  assert code == 1, output + errors
  said = 'failed: catch/wrong seed 1: launch.py ended with exit code 2: error: --num_envs is 0: set'
  assert said in errors
  config = json.loads((run_dir / 'config.json').read_text())
  first, second = (' '.join(command) for command in config['commands'])
  assert f'--run_dir={run_dir}' in first and f'--resume={run_dir}' in second
  (record,) = records.read(str(docs / 'data' / 'catch.json'))
  assert (record.row, record.seed) == ('catch/anakin', 4)
  stopped, last = record.attempts
  assert stopped['exit_code'] is None and last['exit_code'] == 0
  assert stopped['first_second'] == 0 < last['first_second']
  assert record.totals['actor_steps'] >= 80_000 == config['config']['num_steps']
  assert record.totals['seconds'] >= max(record.curve.seconds)
  assert record.curve.seconds == sorted(record.curve.seconds)
  assert record.final['episodes'] == 10 and -1 <= record.final['mean'] <= 1
  text = (docs / 'index.md').read_text()
  assert f'| `anakin` | {record.final["mean"]:.4g}, one seed | 1 of 1 |' in text
  assert '| `wrong` | not run | 0 of 1 |' in text

  # Nothing is left to do for it, and the page needs no run.
  page = {
    path.name: path.read_bytes() for path in docs.rglob('*') if path.suffix in ('.md', '.svg')
  }
  code, output, errors = finish(start('*/anakin', *flags))
  assert code == 0 and output == f'wrote {docs / "index.md"}\n', output + errors
  shutil.move(runs, tmp_path / 'elsewhere')
  (docs / 'index.md').unlink()
  shutil.rmtree(docs / 'figures')
  assert smoke.command('results', '--render_only', *flags).returncode == 0
  assert page == {
    path.name: path.read_bytes() for path in docs.rglob('*') if path.suffix in ('.md', '.svg')
  }
  assert set(page) == {'index.md', 'catch.svg'}

  # The kept policy plays without the run, and tells nothing of this machine.
  policy = docs / 'policies' / 'catch' / 'anakin'
  assert str(tmp_path) not in (policy / 'config.json').read_text()
  command = [sys.executable, 'evaluate.py', str(policy), '--episodes=10', '--seed=4']
  score = tmp_path / 'score.json'
  subprocess.run([*command, f'--json={score}'], cwd=ROOT, check=True, timeout=DEADLINE_SECONDS)
  assert json.loads(score.read_text())['score']['mean'] == record.final['mean']
