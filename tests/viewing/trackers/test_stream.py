"""What is read from a run directory for a tracker, and that it is read once."""

import json
import os
import random

import pytest

from tests.viewing.trackers.runs import GrowingRun
from viewing.trackers.records import Media, Metrics
from viewing.trackers.stream import Stream, header, outcome


def read_all(stream, flush=True):
  """Returns every record that there is now."""
  records = []
  while new := stream.read(flush):
    records += new
  return records


def of(records, prefix):
  return [r for r in records if isinstance(r, Metrics) and r.prefix == prefix]


def grow(run, k):
  """Adds what the k-th second of a run writes; some columns come later."""
  extra = {'entropy': 1.0} if k > 20 else {}
  run.report('inference_learner/0', k, episode_return=k, loss=2.0, **extra)
  run.report('actor/0', k + 0.5, stepping_share=0.25)
  if k % 10 == 0:
    run.report('evaluator/0', k, evaluator_return=k)
    for node in ('actor/0', 'inference_learner/0'):
      run.process(node, k, cpu_seconds=k / 2)
  if k % 15 == 0:
    run.video(10 * k)


def test_measurements_become_means_and_evaluations_do_not(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  for k in range(11):
    grow(run, k)
  records = read_all(Stream(run.path, 5.0, {}))
  learner = of(records, 'inference_learner/0')
  assert [(r.time, r.values['episode_return']) for r in learner] == [
    (1e9 + 4, 2.0),
    (1e9 + 9, 7.0),
    (1e9 + 10, 10.0),
  ]
  assert learner[1].axes == {
    'environment_frames': 90,
    'actor_steps': 90,
    'learner_steps': 90,
    'seconds': 9,
  }
  assert set(learner[0].values) == {'episode_return', 'loss'}
  assert [r.values for r in of(records, 'evaluator/0')] == [
    {'evaluator_return': 0.0},
    {'evaluator_return': 10.0},
  ]
  times = [r.time for r in records if isinstance(r, Metrics)]
  assert times == sorted(times)


def test_all_rows_are_exported_one_by_one_if_asked(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  for k in range(7):
    grow(run, k)
  assert len(of(read_all(Stream(run.path, 0.0, {})), 'inference_learner/0')) == 7


def test_a_mean_waits_for_its_last_row_until_the_run_has_ended(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  stream = Stream(run.path, 5.0, {})
  for k in range(4):
    grow(run, k)
  assert of(read_all(stream, flush=False), 'inference_learner/0') == []
  grow(run, 4)
  grow(run, 5)
  [mean] = of(read_all(stream, flush=False), 'inference_learner/0')
  assert mean.values['episode_return'] == 2.0
  [last] = of(read_all(stream), 'inference_learner/0')
  assert last.values['episode_return'] == 5.0


@pytest.mark.parametrize('seed', range(5))
def test_no_record_is_lost_or_repeated_however_the_files_are_read(tmp_path, seed):
  run, rng = GrowingRun(tmp_path / 'run'), random.Random(seed)
  stream, records, cursor = Stream(run.path, 5.0, {}), [], {}
  for k in range(60):
    grow(run, k)
    if rng.random() < 0.3:
      records += stream.read(flush=False)
      cursor = json.loads(json.dumps(stream.cursor))
    if rng.random() < 0.1:  # As if the process had been killed since it last wrote its cursor.
      known = len(records)
      records += stream.read(flush=False)
      del records[known:]
      stream = Stream(run.path, 5.0, cursor)
  records += read_all(stream)
  expected = read_all(Stream(run.path, 5.0, {}))
  by_key = lambda r: (isinstance(r, Media), str(r))  # noqa: E731
  assert sorted(records, key=by_key) == sorted(expected, key=by_key)
  assert len(expected) > 40
  assert read_all(stream) == []


def test_a_stream_between_two_cursors_repeats_the_same_records_in_order(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  for k in range(33):
    grow(run, k)
  stream = Stream(run.path, 5.0, {})
  stream.read(flush=False)
  begin = json.loads(json.dumps(stream.cursor))
  for k in range(33, 77):
    grow(run, k)
  records = stream.read(flush=False)
  end = json.loads(json.dumps(stream.cursor))
  for k in range(77, 90):
    grow(run, k)
  assert Stream(run.path, 5.0, begin, end).read(flush=True) == records
  assert len(records) > 20 and sum(isinstance(r, Media) for r in records) == 3


def test_a_large_file_is_read_in_parts_and_whole(tmp_path, monkeypatch):
  monkeypatch.setattr('viewing.trackers.rows._CHUNK_BYTES', 200)
  run = GrowingRun(tmp_path / 'run')
  for k in range(50):
    grow(run, k)
  stream = Stream(run.path, 5.0, {})
  first = stream.read(flush=True)
  assert 0 < len(of(first, 'inference_learner/0')) < 10
  records = first + read_all(stream)
  assert len(of(records, 'inference_learner/0')) == 10


def test_processes_have_their_cores_and_memory(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  run.process('actor/0', 5, cpu_seconds=1.0, memory_mib=64.0)
  run.process('actor/0', 35, cpu_seconds=16.0)
  stream = Stream(run.path, 5.0, {})
  first, second = of(read_all(stream), 'processes/actor/0')
  assert first.values == {'memory_mib': 64.0, 'open_files': 5.0, 'threads': 6.0}
  assert (second.values['cores'], second.axes) == (0.5, {'seconds': 30.0})
  run.process('actor/0', 65, cpu_seconds=19.0)  # After a restart of the export.
  run.process('actor/0', 95, cpu_seconds=2.0)  # After a restart of the node.
  third, fourth = of(read_all(Stream(run.path, 5.0, stream.cursor)), 'processes/actor/0')
  assert (third.values['cores'], third.axes) == (0.1, {'seconds': 60.0})
  assert 'cores' not in fourth.values


def test_only_the_first_nodes_of_a_group_are_exported(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  for i in range(12):
    run.report(f'actor/{i}', 1.0, stepping_share=0.5)
    run.process(f'actor/{i}', 1.0, cpu_seconds=1.0)
  prefixes = {r.prefix for r in read_all(Stream(run.path, 5.0, {}))}
  assert prefixes == {f'{p}actor/{i}' for p in ('', 'processes/') for i in range(8)}


def test_videos_and_pictures_come_once_and_again_if_they_change(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  run.video(30)
  run.write('graph.svg', '<svg/>')
  stream = Stream(run.path, 5.0, {})
  assert [(m.name, m.actor_steps) for m in read_all(stream)] == [('video', 30), ('graph', 0)]
  run.video(60)
  os.remove(tmp_path / 'run' / 'videos' / '000000000030.gif')
  run.write('learning_curve.png', 'x')
  assert [m.name for m in read_all(stream)] == ['video', 'learning_curve']
  run.write('learning_curve.png', 'xy')
  assert [m.name for m in read_all(Stream(run.path, 5.0, stream.cursor))] == ['learning_curve']


def test_the_lineage_of_a_population_comes_once_it_is_complete(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  run.write('lineage.jsonl', '{}\n')
  stream = Stream(run.path, 5.0, {})
  assert read_all(stream, flush=False) == []
  assert [m.name for m in read_all(stream)] == ['lineage']


def test_no_file_to_which_a_link_leads_is_exported(tmp_path):
  run = GrowingRun(tmp_path / 'run')
  run.video(30)
  (tmp_path / 'secret.gif').write_text('secret')
  (tmp_path / 'run' / 'videos' / '000000000060.gif').symlink_to(tmp_path / 'secret.gif')
  (tmp_path / 'run' / 'graph.svg').symlink_to(tmp_path / 'secret.gif')
  assert [(m.name, m.actor_steps) for m in read_all(Stream(run.path, 5.0, {}))] == [('video', 30)]


@pytest.mark.parametrize(
  'code, finished, state',
  [(0, True, 'finished'), (1, False, 'failed'), (130, False, 'stopped'), (None, False, 'killed')],
)
def test_the_end_of_a_run_has_a_name(tmp_path, code, finished, state):
  run = GrowingRun(tmp_path / 'run')
  if code is not None:
    run.end(code, finished)
  ended = outcome(run.path)
  assert (ended.state, ended.exit_code) == (state, code)
  assert ended.summary == ({'evaluator_return': 0.5, 'actor_steps': 90.0} if finished else {})


def test_secrets_among_the_options_are_masked(tmp_path):
  run = GrowingRun(tmp_path / 'run', env_options='rows=5,api_key=hunter2')
  about = header(run.path)
  assert about.config['env_options'] == 'rows=5,api_key=***' and 'hunter2' not in str(about)
  assert (about.name, about.config['program'], about.config['num_steps']) == (
    'run',
    'sebulba',
    1000,
  )
