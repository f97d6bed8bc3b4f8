"""Records: what is read off a run, what is kept, and which records are a row's."""

import dataclasses
import json
import multiprocessing
import os

import pytest

from benchmarks.peers.reports import Report
from benchmarks.results import attempts, cells, measures, provenance, recording, records
from benchmarks.results.declared import Entry, Launch, Peer, Task
from benchmarks.results.places import Places
from benchmarks.results.records import Curve
from rundir import lineage, run_directory, versions
from tests.benchmarks.results.attempted import attempted
from tests.benchmarks.results.recorded import rows

ROW = Launch(label='sebulba', program='sebulba', env='catch', budget=400)
ENTRY = Entry(Task(name='catch', title='Catch', about='', rows=(ROW,)), ROW)
CONFIG = {'batch_size': 16, 'seed': 1, 'run_dir': '/a/run', 'offline_data': ['/a'], 'devices': [0]}


CODE = {'commit': '76543210', 'modified': False}  # That evaluated.


def without_code(record):
  return dataclasses.replace(record, final={})


@pytest.fixture
def run_dir(tmp_path):
  """A run that was resumed after second 10, with an action repeat of 2."""
  run_dir = tmp_path / 'run'
  (run_dir / 'logs').mkdir(parents=True)
  (run_dir / 'logs' / 'inference_learner-0.csv').write_text(
    'actor_steps,seconds,episode_return\n50,5.0,\n150,10.0,0.5\n200,14.0,0.5\n400,18.0,1\n'
  )
  (run_dir / 'logs' / 'evaluator-0.csv').write_text(
    'environment_frames,evaluated_frames,evaluator_return,evaluator_episodes,seconds\n'
    '210,200,0.25,10,8.0\n'
    ',,nan,,9.0\n'
    '800,800,0.9999999,10,20.0\n'
  )
  summary = {'actor_steps': 400, 'environment_frames': 800, 'learner_steps': 3}
  (run_dir / 'summary.json').write_text(json.dumps(summary))
  record = run_directory.Record('sebulba', {}, CONFIG, [], {'jax': '0.6.2'})
  (run_dir / 'config.json').write_text(json.dumps(dataclasses.asdict(record)))
  protocol = {
    'env': 'catch',
    'env_options': {'rows': 10, 'columns': 5},
    'action_repeat': 2,
    'reward': 'raw',
    'exploration': 0.001,
    'num_envs': 5,
    'episodes_each': 4,
  }
  score = {'mean': 0.8, 'standard_error': 0.1, 'episodes': 20, 'median': 1.0}
  (tmp_path / 'score.json').write_text(json.dumps({'score': score, 'protocol': protocol}))
  return run_dir


def test_a_record_has_the_curve_the_final_return_and_the_times_of_all_attempts(run_dir, tmp_path):
  made = [attempted(), attempted(first_second=10.0, start_up=3.0, seconds=15.0)]
  record = recording.of_launch(
    ENTRY, ROW, 1, str(run_dir), str(tmp_path / 'score.json'), made, CODE
  )
  assert record.curve == Curve(
    actor_steps=[100, 400],
    environment_frames=[200, 800],
    seconds=[9.0, 33.0],  # The first command had ended after 20 s.
    mean_return=[0.25, 1.0],
    episodes=[10, 10],
  )
  assert record.final == {
    'mean': 0.8,
    'standard_error': 0.1,
    'episodes': 20,
    'protocol': '20 whole episodes of `catch` (rows=10, columns=5), exploration 0.001, raw rewards, '
    'action repeat 2',
    'code': CODE,
  }
  shown = sorted([*cells.commits([record]).split(', ')])
  assert shown == sorted({'`7654321`', *cells.commits([without_code(record)]).split(', ')})
  assert record.totals == {
    'actor_steps': 400,
    'environment_frames': 800,
    'seconds': 35.0,
    'steps_per_second': round((100 + 200) / (5 + 4), 1),  # Without the time from 10.0 to 14.0.
  }
  assert record.command == 'launch.py --program=sebulba --env=catch --num_steps=400 --seed=1'
  assert record.versions == {'jax': '0.6.2'} and len(record.attempts) == 2
  assert record.options == {'batch_size': 16, 'devices': [0]}


def test_a_population_has_the_last_scores_of_its_members(run_dir, tmp_path):
  file = lineage.Lineage(str(run_dir))
  for event, (member, score) in enumerate(
    [(1, 2.0), (0, 1.0000004), (2, 3.0), (1, 0.5), (2, None)]
  ):
    file.append(lineage.Event(event + 1, 0, member, 7, event, {}, score, {}, None, None, {}))
  score = str(tmp_path / 'score.json')
  record = recording.of_launch(ENTRY, ROW, 1, str(run_dir), score, [attempted()], CODE)
  assert record.final['member_scores'] == [1.0, 0.5]


def test_a_run_without_two_reports_has_no_rate(run_dir, tmp_path):
  (run_dir / 'logs' / 'inference_learner-0.csv').write_text('actor_steps,seconds\n50,5.0\n')
  score = str(tmp_path / 'score.json')
  record = recording.of_launch(ENTRY, ROW, 1, str(run_dir), score, [attempted()], CODE)
  assert record.totals['steps_per_second'] is None


def test_long_curves_are_thinned_and_keep_both_ends_and_every_new_best(run_dir, tmp_path):
  lines = [f'{i},{i},{0.9 if i == 503 else 0.5},10,{i}' for i in range(1, 1001)]
  header = 'environment_frames,evaluated_frames,evaluator_return,evaluator_episodes,seconds'
  (run_dir / 'logs' / 'evaluator-0.csv').write_text('\n'.join([header, *lines, '']))
  score = str(tmp_path / 'score.json')
  frames = recording.of_launch(ENTRY, ROW, 1, str(run_dir), score, [attempted()], CODE)
  frames = frames.curve.environment_frames
  assert (len(frames), frames[0], frames[-1]) == (101, 1, 1000) and 503 in frames


def test_a_peer_without_final_episodes_is_recorded_with_its_last_training_return():
  row = Peer(label='p', peer='rllib', env='cartpole', budget=300, action_repeat=4)
  told = [
    Report(1.0, 0, 0, float('nan')),
    Report(2.0, 100, 90, 5.0),
    Report(4.0, 300, 280, 9.0),
  ]
  record = recording.of_peer(ENTRY, row, 1, told, None, attempted(), {})
  assert record.final['mean'] == 9.0 and 'training episodes' in record.final['protocol']
  assert record.curve.environment_frames == [400, 1200] and record.curve.seconds == [2.0, 4.0]
  assert record.totals['steps_per_second'] == 100.0


def _record(row, seed, **changed):
  """Returns a record of a short curve."""
  curve = Curve([1, 2], [4, 8], [0.5, 1.0], [0.0, 1.0], [10, 10])
  made = records.Record(row, seed, {'x': 1}, 'c', curve, 'evaluator', {'mean': 1.0}, {}, [{}], {})
  return dataclasses.replace(made, **changed)


def test_records_are_read_as_they_were_written_in_the_one_file_of_their_task(tmp_path):
  path = tmp_path / 'data' / 'group' / 'task.json'
  assert records.read(str(path)) == []
  made = [_record('group/task/a', 1), _record('group/task/a', 10), _record('group/task/b', 2)]
  for record in reversed(made):
    records.add(str(path), record)
  assert records.read(str(path)) == made
  assert '"actor_steps": [1, 2],\n' in path.read_text()
  again = dataclasses.replace(made[1], command='d')
  records.add(str(path), again)
  assert records.read(str(path)) == [made[0], again, made[2]]
  path.write_text('{"format": 0}')
  wanted = f'^{path} does not hold records of runs: it has another format'
  with pytest.raises(ValueError, match=wanted):
    records.read(str(path))


def test_runs_that_end_at_once_are_all_recorded(tmp_path):
  path = str(tmp_path / 'data' / 'task.json')
  with multiprocessing.get_context('fork').Pool(4) as pool:
    pool.starmap(records.add, [(path, _record('task/a', seed)) for seed in range(40)], 1)
  assert [record.seed for record in records.read(path)] == [*range(40)]


def test_records_of_other_settings_are_not_the_rows(tmp_path):
  places = Places('', str(tmp_path))
  entry = Entry(rows.TASKS[0], rows.TASKS[0].rows[0])
  curve = Curve([], [], [], [], [])
  for seed, settings in ((1, entry.row.settings()), (2, entry.row.settings() | {'budget': 1})):
    made = records.Record(entry.name, seed, settings, '', curve, '', {}, {}, [], {})
    records.add(places.records(entry), made)
  assert list(records.of_row(entry, places)) == [1]


def test_records_of_earlier_versions_have_the_names_of_todays_options(tmp_path):
  made = _record('a/b', 1)
  for name in ('lstm_size', 'core_size'):
    preset = {name: 7}
    record = dataclasses.replace(made, settings={'budget': 1, 'preset': preset}, options=preset)
    path = tmp_path / 'data' / f'{name}.json'
    records.add(str(path), record)
    (found,) = records.read(str(path))
    assert found.options == found.settings['preset'] == {'core_size': 7}
    attempted = tmp_path / 'attempts.json'
    attempted.write_text(json.dumps({'settings': record.settings, 'attempts': []}))
    assert attempts.read(str(attempted)).settings == found.settings


def test_attempts_are_recorded_also_when_they_are_stopped(tmp_path):
  path, run_dir = str(tmp_path / 'a' / '1.attempts.json'), tmp_path / 'run'
  (run_dir / 'logs').mkdir(parents=True)
  log = run_dir / 'logs' / 'learner-0.csv'
  with (
    pytest.raises(KeyboardInterrupt),
    attempts.attempt(path, {'budget': 1}, str(run_dir), '') as first,
  ):
    log.write_text('seconds\n0.0\n')
    raise KeyboardInterrupt
  with attempts.attempt(path, {'budget': 1}, str(run_dir), '') as second:
    log.write_text('seconds\n0.0\n0.001\n')
    second.exit_code = 0
  record = attempts.read(path)
  assert record.settings == {'budget': 1} and len(record.attempts) == 2
  assert record.attempts[0].exit_code is None and record.attempts[1].exit_code == 0
  assert first.start_up is None, 'a log that never left second 0 tells nothing'
  assert 0 <= second.start_up <= second.seconds
  assert record.attempts[1].machine['cpu_cores'] >= 1 and len(second.code['commit']) == 40


def test_the_times_of_a_command_that_was_killed_are_completed(tmp_path):
  path, run_dir = tmp_path / '1.attempts.json', tmp_path / 'run'
  killed = dataclasses.asdict(attempted(0.0, None, None)) | {'began': 100.0, 'load_at_end': None}
  path.write_text(json.dumps({'settings': {}, 'attempts': [killed]}))
  (run_dir / 'logs').mkdir(parents=True)
  log = run_dir / 'logs' / 'learner-0.csv'
  log.write_text('seconds\n5.0\n20.0\n')
  os.utime(log, (123.0, 123.0))
  (alone,) = attempts.complete(str(path), str(run_dir)).attempts
  assert (alone.start_up, alone.seconds) == (3.0, 23.0)
  path.write_text(json.dumps({'settings': {}, 'attempts': [killed]}))
  with attempts.attempt(str(path), {}, str(run_dir), '') as second:
    pass
  first = attempts.read(str(path)).attempts[0]
  assert (first.start_up, first.seconds, second.first_second) == (3.0, 23.0, 20.0)


def test_wall_time_counts_every_command_before_it():
  made = [
    attempted(0.0, 2.0, seconds=14.0),
    attempted(10.0, None, seconds=1.0),  # It failed at once.
    attempted(10.0, 3.0, seconds=24.0),
    attempted(30.0, 5.0),
  ]
  assert attempts.wall_seconds(made, 10.0) == 12.0
  assert attempts.wall_seconds(made, 11.0) == 14.0 + 3.0 + 1.0
  assert attempts.wall_seconds(made, 31.0) == 14.0 + 24.0 + 5.0 + 1.0


def test_a_threshold_is_reached_by_the_first_evaluation_that_has_it_and_keeps_it_for_the_next():
  curve = Curve([1, 2, 3], [10, 20, 30], [1.0, 2.0, 3.0], [0.5, 0.9, 0.7], [1, 1, 1])
  assert measures.reached(curve, 0.7) == (20, 2.0, False)
  assert measures.reached(curve, 0.5) == (10, 1.0, False)
  assert measures.reached(curve, 0.91) is None
  assert measures.reached(curve, 0.8) is None  # 0.9 was chance.
  lucky = Curve([1, 2, 3], [10, 20, 30], [1.0, 2.0, 3.0], [0.9, 0.5, 0.9], [1, 1, 1])
  assert measures.reached(lucky, 0.8) == (30, 3.0, False)


@pytest.mark.parametrize('before, late', [(9, True), (10, False)])
def test_a_threshold_that_only_the_last_evaluation_has_is_late_after_a_long_gap(before, late):
  curve = Curve([1, 2], [before, 20], [1.0, 2.0], [0.5, 0.9], [1, 1])
  assert measures.reached(curve, 0.7) == (20, 2.0, late)
  assert measures.reached(curve, 0.5) == (before, 1.0, False)


def test_a_band_is_the_mean_where_all_curves_have_values():
  one = Curve([], [0, 10, 20, 10], [0.0] * 4, [0.0, 7.0, 2.0, 1.0], [1] * 4)
  two = Curve([], [5, 30], [0.0] * 2, [1.5, 6.5], [1] * 2)
  band = measures.band([one, two])
  assert (band.environment_frames[0], band.environment_frames[-1]) == (5, 20)
  assert band.mean[0] == pytest.approx((0.5 + 1.5) / 2)
  assert band.mean[-1] == pytest.approx((2 + 4.5) / 2)
  assert (band.low <= band.mean).all() and (band.high >= band.mean).all()
  alone = measures.band([one])
  assert list(alone.environment_frames) == [0, 10, 20] and list(alone.low) == [0, 1, 2]
  assert measures.band([Curve([], [], [], [], [])]) is None


def test_changes_of_generated_files_do_not_count_as_changes_of_the_code(tmp_path):
  def git(*arguments):
    output = versions._git(str(tmp_path), '-c', 'user.name=n', '-c', 'user.email=e', *arguments)
    assert output is not None, arguments

  assert provenance.code(str(tmp_path)) == {'commit': '', 'modified': None}
  git('init')
  (tmp_path / 'code.py').write_text('1')
  git('add', '.')
  git('commit', '--message=first')
  (tmp_path / 'docs').mkdir()
  (tmp_path / 'docs' / 'page.md').write_text('2')
  generated = str(tmp_path / 'docs')
  assert provenance.code(str(tmp_path), generated)['modified'] is False
  assert provenance.code(str(tmp_path), '/elsewhere')['modified'] is True
  (tmp_path / 'code.py').write_text('3')
  assert provenance.code(str(tmp_path), generated)['modified'] is True
