"""Directories of runs: what is resumed, what is set aside, what is kept, and the states of rows."""

import dataclasses
import json
import shutil

import pytest

from benchmarks.results import launches, policies, records, states
from benchmarks.results.declared import Entry, Launch, Task
from benchmarks.results.places import Places
from benchmarks.results.records import Curve, Record
from rundir import checkpoints, directory_lock, run_directory, run_end
from sweeps import commands

ROW = Launch(label='anakin', program='anakin', env='catch', budget=100, seeds=(1, 2))
ENTRY = Entry(Task(name='catch', title='', about='', rows=(ROW,)), ROW)


@pytest.fixture
def places(tmp_path):
  """Empty directories."""
  return Places(str(tmp_path / 'runs'), str(tmp_path / 'docs'))


@pytest.fixture
def make_run(places, tmp_path):
  """Returns a function that makes seed 1's run directory; returns its path."""

  def make(settings, is_run=True, has_checkpoint=True, params=0):
    run_dir = tmp_path / 'runs' / 'catch' / 'anakin' / '1'
    run_dir.mkdir(parents=True)
    (run_dir / '.lock').touch()
    if is_run:
      config = {'env': 'catch', 'run_dir': str(run_dir), 'env_options': ''}
      record = run_directory.Record('anakin', {'run_dir': str(run_dir)}, config, [['x']], {})
      (run_dir / 'config.json').write_text(json.dumps(dataclasses.asdict(record)))
    if has_checkpoint:
      counts = {'learner_steps': 3}
      checkpoints.write(checkpoints.directory(str(run_dir)), counts, b'state', keep=1)
    if params:
      counts = {'actor_steps': 1, 'environment_frames': 2, 'learner_steps': 3}
      (run_dir / 'summary.json').write_text(json.dumps({**counts, 'evaluator_return': 1.0}))
      (run_dir / 'params').mkdir()
      (run_dir / 'params' / 'final.msgpack').write_bytes(b'x' * params)
    attempts = {'settings': settings, 'attempts': []}
    (run_dir.parent / '1.attempts.json').write_text(json.dumps(attempts))
    (run_dir.parent / '1.log').write_text('a line')
    return run_dir

  return make


def test_a_run_with_a_checkpoint_is_resumed(make_run, places):
  run_dir = make_run(ROW.settings())
  launches.keep_only_this_row(ENTRY, 1, places)
  flags = ROW.arguments(1, 'unread')
  assert commands.target(str(run_dir), flags) == [f'--resume={run_dir}']
  assert not commands.trained(str(run_dir))
  new = str(run_dir.parent / '2')
  assert commands.target(new, flags) == [*flags, f'--run_dir={new}']


@pytest.mark.parametrize(
  'changes, has_checkpoint, why',
  [({'budget': 7}, True, 'other settings'), ({}, False, 'never checkpointed')],
)
def test_a_run_that_cannot_continue_is_set_aside(
  make_run, places, capsys, changes, has_checkpoint, why
):
  for number in (1, 2):
    run_dir = make_run(ROW.settings() | changes, has_checkpoint=has_checkpoint)
    launches.keep_only_this_row(ENTRY, 1, places)
    assert not run_dir.exists()
    aside = run_dir.parent / f'1.set-aside-{number}'
    assert {path.name for path in aside.iterdir()} == {'1', '1.attempts.json', '1.log'}
    assert (aside / '1' / 'config.json').exists()
  assert why in capsys.readouterr().out


def test_commands_of_a_directory_that_is_gone_are_not_those_of_the_next_run(make_run, places):
  run_dir = make_run(ROW.settings())
  shutil.rmtree(run_dir)
  for _ in range(2):
    launches.keep_only_this_row(ENTRY, 1, places)
    assert [path.name for path in run_dir.parent.iterdir()] == ['1.set-aside-1']


def test_a_directory_that_a_rejected_command_left_is_used(make_run, places):
  run_dir = make_run(ROW.settings(), is_run=False, has_checkpoint=False)
  launches.keep_only_this_row(ENTRY, 1, places)
  assert run_dir.exists()


def test_a_policy_is_kept_without_paths_and_only_if_it_is_small(make_run, places, tmp_path):
  run_dir = make_run(ROW.settings(), params=policies.MOST_BYTES)
  assert policies.keep(ENTRY, ROW, places) == ''
  policy = tmp_path / 'docs' / 'policies' / 'catch' / 'anakin'
  record = run_directory.read_record(str(policy))
  assert record.commands == [['launch.py', *ROW.arguments(1, 'unread')]]
  assert str(tmp_path) not in (policy / 'config.json').read_text()
  assert run_end.read_summary(str(policy))['environment_frames'] == 2
  params = run_dir / 'params' / 'final.msgpack'
  assert (policy / 'params' / 'final.msgpack').read_bytes() == params.read_bytes()
  params.write_bytes(b'x' * (policies.MOST_BYTES + 1))
  assert policies.keep(ENTRY, ROW, places) == (
    'its parameters are 2,000,001 bytes, and at most 2,000,000 are kept'
  )


def test_policies_of_other_settings_or_with_secrets_are_not_kept(make_run, places):
  run_dir = make_run(ROW.settings(), params=9)
  changed = dataclasses.replace(ROW, budget=7)
  assert 'no final parameters' in policies.keep(Entry(ENTRY.task, changed), changed, places)
  config = json.loads((run_dir / 'config.json').read_text())
  config['config']['env_options'] = 'api_key=abc'
  (run_dir / 'config.json').write_text(json.dumps(config))
  assert policies.keep(ENTRY, ROW, places) == 'its options have a secret'


def test_a_row_is_missing_started_running_and_done(make_run, places):
  assert states.of_row(ENTRY, places) == ('missing', 0)
  run_dir = make_run(ROW.settings())
  assert states.of_row(ENTRY, places) == ('started', 0)
  directory_lock.take(str(run_dir))  # Until this process ends.
  assert states.of_row(ENTRY, places) == ('running', 0)
  for seed in ROW.seeds:
    curve = Curve([], [], [], [], [])
    made = Record(ENTRY.name, seed, ROW.settings(), '', curve, '', {}, {}, [], {})
    records.add(places.records(ENTRY), made)
  assert states.of_row(ENTRY, places) == ('done', 2)
