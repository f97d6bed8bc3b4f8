"""Experiments of bsuite: their declaration, their record, and a run that is stopped and continued."""

import dataclasses
import json
import signal
import subprocess
import sys

import pytest

from benchmarks import bsuite
from benchmarks.results import experiments, page, records, selection
from benchmarks.results.declared import Entry, Experiment, Task
from benchmarks.results.places import Places
from benchmarks.running import ROOT, processes
from environments.bsuite_record import RecordedEnvironment
from rundir import run_directory
from tests.benchmarks.results.attempted import attempted
from tests.programs_under_test import ENVIRONMENT
from tests.waiting import alive, wait_until

EPISODES = 12
FLAGS = ('--epsilon_base=0.05',)
ROW = Experiment(
  label='r2d2',
  program='r2d2',
  env='bsuite:memory_len/[01]',
  budget=EPISODES,
  flags=FLAGS,
  seeds=(3, 4),
)
TASK = Task(name='memory', title='Memory', about='', rows=(ROW,), measure='score')
ENTRY = Entry(TASK, ROW)


@pytest.fixture
def results(tmp_path):
  """What a sweep leaves: in each id every second episode is won."""
  for number, bsuite_id in enumerate(ROW.ids()):
    env = RecordedEnvironment(bsuite_id, str(tmp_path), EPISODES)
    for episode in range(EPISODES):
      cue = env.reset().observation[0, 2]
      right = int(cue > 0)
      for _ in range(number + 2):
        timestep = env.step(right if episode % 2 else 1 - right)
      assert timestep.last() and timestep.reward == (1 if episode % 2 else -1)
    run_dir = tmp_path / 'runs' / f'memory_len-{number}.2'
    run_dir.mkdir(parents=True)
    for attempt in (1, 2):
      (tmp_path / 'runs' / f'memory_len-{number}.{attempt}.log').touch()
    options = {'env': f'bsuite:{bsuite_id}', 'env_options': 'results_dir=/a,episodes=12'}
    config = {'batch_size': 8, 'seed': 3, 'run_dir': '/a/run', **options}
    record = run_directory.Record('r2d2', {}, config, [], {'jax': '0.6.2'})
    (run_dir / 'config.json').write_text(json.dumps(dataclasses.asdict(record)))
  return str(tmp_path)


def test_a_record_has_the_score_and_the_returns_of_the_ids(results, tmp_path):
  record = experiments.record(ENTRY, ROW, 3, results, [attempted()])
  # bsuite logs each of the first ten episodes, then every second one.
  assert record.curve.episodes == [2] * 10 + [4]
  assert record.curve.actor_steps == [5 * episode for episode in (*range(1, 11), 12)]
  assert record.curve.mean_return == [-1, 1] * 5 + [0]
  assert record.final == {
    'mean': 0.0,  # A regret of half the episodes is that of a guess.
    'standard_error': None,
    'episodes': 24,
    'protocol': "bsuite's score of 2 of the 23 ids of `memory_len`, from 12 training episodes each, "
    'exploration included',
    'mean_return_by_id': {'memory_len/0': 0.0, 'memory_len/1': 0.0},
  }
  assert record.totals == {
    'actor_steps': 60,
    'environment_frames': 60,
    'seconds': 20.0,
    'steps_per_second': None,
  }
  assert record.options == {'batch_size': 8} and record.versions == {'jax': '0.6.2'}
  places = Places('', str(tmp_path / 'docs'))
  records.add(places.records(ENTRY), record)
  assert records.of_row(ENTRY, places) == {3: record}
  text = page.render([TASK], [], places)[places.page].decode()
  assert '| system | score | seeds |' in text and '| `r2d2` | 0, one seed | 1 of 2' in text
  assert '- r2d2: mean training return by id: 0, 0.\n' in text


def test_the_command_names_episodes_that_are_not_bsuites():
  whole = dataclasses.replace(ROW, budget=10_000)
  assert whole.arguments(4, 'a/b', '--jobs=2') == [
    *('-m', 'benchmarks.bsuite', '--program=r2d2', '--ids=memory_len/[01]', '--results=a/b'),
    *('--jobs=2', '--', '--seed=4', *FLAGS),
  ]
  assert ROW.shown_command('memory/r2d2') == (
    "-m benchmarks.bsuite --program=r2d2 '--ids=memory_len/[01]' "
    '--results=runs/results/memory/r2d2/3 --episodes=12 -- --seed=3 --epsilon_base=0.05'
  )


@pytest.mark.parametrize(
  'changes, said',
  [
    ({'env': 'bsuite:memory_lem/*'}, 'names no id of bsuite'),
    ({'env': 'bsuite:*/0'}, 'x has ids of bandit and bandit_noise and'),
    ({'program': 'anakin'}, 'has no environments of bsuite'),
    ({'flags': ('--num_actors=4',)}, '--num_actors after -- is set by the sweep'),
  ],
)
def test_ids_are_those_of_an_experiment_that_the_program_can_run(changes, said):
  row = dataclasses.replace(ROW, label='x', **changes)
  with pytest.raises(ValueError, match=said):
    row.check()


def test_a_pattern_may_name_one_experiment_alone():
  dataclasses.replace(ROW, env='bsuite:*_len/0').check()


def test_an_experiment_has_no_time_to_a_threshold():
  with pytest.raises(ValueError, match='memory: bsuite records no times, so leave out thresholds'):
    selection.entries([dataclasses.replace(TASK, thresholds=(0.5,))])


ROWS = """
from benchmarks.results.declared import Experiment, Task

SMALL = ('--mlp_sizes=16', '--batch_size=2', '--unroll_length=5')
ROW = Experiment(
  label='r2d2', program='r2d2', env='bsuite:memory_len/[01]', budget=12, seeds=(4,), flags=SMALL
)
TASKS = (Task(name='memory', title='Memory', about='', rows=(ROW,), measure='score'),)
"""


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_and_is_recorded(tmp_path):
  rows, docs = tmp_path / 'rows.py', tmp_path / 'docs'
  rows.write_text(ROWS)
  run_dir = tmp_path / 'runs' / 'memory' / 'r2d2' / '4'
  command = [sys.executable, '-m', 'benchmarks.results', f'--rows={rows}', f'--docs={docs}']
  command.append(f'--runs={tmp_path / "runs"}')

  def start():
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)

  process = start()
  wait_until(run_dir.exists, alive(process), 120, poll=0.05)
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=120)
  assert process.returncode == 143 and processes(str(tmp_path)) == []
  process = start()
  output, _ = process.communicate(timeout=300)
  assert process.returncode == 0, output
  assert 'memory/r2d2 seed 4: score ' in output
  (record,) = records.read(str(docs / 'data' / 'memory.json'))
  assert (record.row, record.seed) == ('memory/r2d2', 4)
  assert len(record.attempts) == 2 and record.totals['actor_steps'] == 12 * 5
  assert bsuite.scores(str(run_dir))[0].done == 2
