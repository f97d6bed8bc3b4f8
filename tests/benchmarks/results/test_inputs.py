"""Rows that read the runs of other rows: what runs first, and what runs again."""

import dataclasses
import json
import shutil

import pytest

from benchmarks.results import inputs, launches, records
from benchmarks.results.declared import Entry, Launch, Task
from benchmarks.results.failed import Failed
from benchmarks.results.places import Places
from benchmarks.results.records import Curve, Record
from benchmarks.results.runner import Runner
from rundir import run_directory
from tests.benchmarks import smoke

DATA = Launch(label='data', program='qt_opt', env='gymnasium:Pendulum-v1', budget=9, seeds=(1, 2))
OFFLINE = dataclasses.replace(DATA, label='offline', inputs={'offline_data': DATA})
TUNED = dataclasses.replace(
  DATA, label='tuned', inputs={'offline_data': DATA, 'init_from': OFFLINE}
)
TASK = Task(name='offline/pendulum', title='', about='', rows=(TUNED, OFFLINE, DATA))
TUNED_ENTRY, OFFLINE_ENTRY, DATA_ENTRY = (Entry(TASK, row) for row in TASK.rows)


@pytest.fixture
def places(tmp_path):
  """Empty directories."""
  return Places(str(tmp_path / 'runs'), str(tmp_path / 'docs'))


@pytest.fixture
def runner(places, monkeypatch, tmp_path):
  """A runner that writes what a run leaves, and lists its runs in `made`; those in `broken` fail."""

  def run(entry, row, seed, places):
    runner.made.append((row.label, seed))
    if row.label in runner.broken:
      raise Failed('it broke')
    run_dir = tmp_path / 'runs' / TASK.name / row.label / str(seed)
    (run_dir / 'params').mkdir(parents=True)
    (run_dir / 'params' / 'final.msgpack').touch()
    (run_dir / 'summary.json').write_text('{"actor_steps": 1, "evaluator_return": 1.0}')
    written = {'settings': row.settings(), 'attempts': []}
    (run_dir.parent / f'{seed}.attempts.json').write_text(json.dumps(written))
    command = ' '.join(row.command(entry.name, seed))
    final, curve = {'mean': 1.0}, Curve([], [], [], [], [])
    record = Record(entry.name, seed, row.settings(), command, curve, '', final, {}, [], {})
    records.add(places.records(entry), record)

  monkeypatch.setattr(launches, 'run', run)
  runner = Runner(places, {}, '')
  runner.made, runner.broken = [], set()
  return runner


def test_a_run_is_made_after_those_that_it_reads_and_each_once(runner, places):
  assert inputs.missing(TUNED_ENTRY, 1, places) == [DATA_ENTRY, OFFLINE_ENTRY]
  assert runner.run([TUNED_ENTRY, OFFLINE_ENTRY], [1]) == []
  assert runner.made == [('data', 1), ('offline', 1), ('tuned', 1)]
  assert inputs.missing(TUNED_ENTRY, 1, places) == []
  assert inputs.missing(OFFLINE_ENTRY, 2, places) == [DATA_ENTRY], 'another seed reads another run'


def test_a_deleted_run_is_repeated_for_its_reader_only(runner, places, tmp_path, capsys):
  runner.run([OFFLINE_ENTRY], [1])
  shutil.rmtree(tmp_path / 'runs' / TASK.name / 'data')
  runner.made.clear()
  runner.run([DATA_ENTRY, OFFLINE_ENTRY], [1])
  assert runner.made == [], 'both have a record'
  capsys.readouterr()
  runner.run([TUNED_ENTRY], [1])
  assert runner.made == [('data', 1), ('tuned', 1)]
  said = (
    'offline/pendulum/data seed 1: its run directory is gone, and offline/pendulum/tuned reads it'
  )
  assert capsys.readouterr().out.splitlines()[0] == said


def test_a_run_of_other_settings_is_not_read(runner, places):
  runner.run([DATA_ENTRY], [1])
  changed = dataclasses.replace(DATA, budget=10)
  reader = dataclasses.replace(OFFLINE, inputs={'offline_data': changed})
  assert [e.row for e in inputs.missing(Entry(TASK, reader), 1, places)] == [changed]


def test_a_failed_run_fails_its_readers_and_runs_once(runner):
  runner.broken.add('data')
  assert runner.run([OFFLINE_ENTRY, TUNED_ENTRY], [1]) == [
    'offline/pendulum/data seed 1: it broke',
    'offline/pendulum/offline seed 1: it reads the run of offline/pendulum/data, which failed',
    'offline/pendulum/tuned seed 1: it reads the run of offline/pendulum/data, which failed',
  ]
  assert runner.made == [('data', 1)]


ROWS = """
import dataclasses
from benchmarks.results.declared import Launch, Task

FLAGS = ('--num_envs=1', '--updates_per_call=1', '--mlp_sizes=16', '--eval_episodes=2')
FIRST = Launch(label='first', program='anakin', env='catch', budget=1000, seeds=(3,), flags=FLAGS)
SECOND = dataclasses.replace(FIRST, label='second', inputs={'init_from': FIRST})
TASKS = (Task(name='small/catch', title='', about='', rows=(FIRST, SECOND), episodes=2),)
"""


@pytest.mark.nightly
def test_launch_gets_the_directory_and_no_file_that_is_kept_has_it(tmp_path):
  (tmp_path / 'rows.py').write_text(ROWS)
  runs, docs = tmp_path / 'runs', tmp_path / 'docs'
  flags = [f'--rows={tmp_path / "rows.py"}', f'--runs={runs}', f'--docs={docs}']
  process = smoke.command('results', '*/*/second', '--keep_policies', *flags)
  assert process.returncode == 0, process.stdout + process.stderr
  first = runs / 'small' / 'catch' / 'first' / '3'
  config = run_directory.read_record(str(runs / 'small' / 'catch' / 'second' / '3')).config
  assert config['init_from'] == str(first)
  made = [(record.row, record.seed) for record in records.read(str(docs / 'data/small/catch.json'))]
  assert ('small/catch/first', 3) in made
  kept = [path for path in docs.rglob('*') if path.suffix in ('.json', '.md')]
  assert docs / 'policies' / 'small' / 'catch' / 'second' / 'config.json' in kept
  for path in kept:
    assert str(tmp_path) not in path.read_text(), path
