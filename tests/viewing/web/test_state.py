"""What the live page is told about runs."""

import dataclasses
import json
import os
import shutil

import pytest

from rundir import videos
from rundir.graph_file import Flow
from tests.graphs import graph
from tests.viewing import long_run
from tests.viewing.web import serving
from viewing.web import boxes
from viewing.web.state import State


@pytest.fixture(scope='module')
def state():
  return State(serving.RUNS)


def test_the_state_of_a_recorded_run_has_its_graph_with_rates_and_its_events(state):
  run = json.loads(json.dumps(state.read(), allow_nan=False))['runs'][0]
  groups = {group['name']: group for group in run['groups']}
  assert groups['actor']['nodes'] == 2 and groups['actor']['state'] == 'busy'
  assert groups['inference_learner']['state'] == 'idle'
  assert [name for name, _ in groups['inference_learner']['meters']] == ['inference', 'learner']
  assert groups['monitor']['reports_only'] and not groups['replay']['reports_only']
  assert (
    groups['actor']['column'] < groups['inference_learner']['column'] < groups['replay']['column']
  )
  edges = {(edge['source'], edge['target']): edge for edge in run['edges']}
  rows, unrolls, batches = (
    edges[pair]
    for pair in (
      ('actor', 'inference_learner'),
      ('inference_learner', 'replay'),
      ('replay', 'inference_learner'),
    )
  )
  assert [edge['what'] for edge in (rows, unrolls, batches)] == ['rows', 'unrolls', 'batches']
  # Unrolls of 20 rows, batches of 8 unrolls.
  assert rows['rate'] == pytest.approx(20 * unrolls['rate'], rel=0.25)
  assert unrolls['rate'] == pytest.approx(8 * batches['rate'], rel=0.25)
  assert {event['kind'] for event in run['timeline']} == {'evaluation', 'checkpoint'}
  times = [event['time'] for event in run['timeline']]
  assert times == sorted(times) and run['span'][0] <= times[0]


def test_rows_that_a_learner_and_its_inference_nodes_both_report_are_counted_once():
  known = graph(player=['actor'], server=['inference'], trainer=['learner'], judge=['evaluator'])
  flows = Flow('player', 'server', 'rows'), Flow('judge', 'server', 'rows')
  means = {
    'server/0': {'actor_steps_per_second': 3.0},
    'server/1': {'actor_steps_per_second': 4.0},
    'trainer/0': {'actor_steps_per_second': 7.0},
  }
  edges = boxes.edges(dataclasses.replace(known, flows=flows), means, {})
  assert [edge['rate'] for edge in edges] == [7.0, None]


def test_actors_that_replay_holds_back_are_marked(state):
  run = state.read()['runs'][1]
  nodes = {name: word for name, word, *_ in run['nodes']}
  assert nodes['actor/0'] == nodes['actor/1'] == 'held'
  assert nodes['inference_learner/0'] == 'busy'


def test_a_node_has_its_curves_process_log_and_the_command_for_its_stacks(state):
  node = state.node(0, 'inference_learner/0')
  assert len(node['rows']) <= 300 and len(node['columns']) == len(node['rows'][0])
  assert node['process']['memory_mib'] > 50
  assert node['log'].splitlines()[-1].endswith("'learner_steps': 139}")
  assert node['stacks'].endswith('recorded/slow_environment --stacks=inference_learner/0')
  with pytest.raises(LookupError):
    state.node(0, 'actor/7')
  with pytest.raises(LookupError):
    state.node(3, 'actor/0')


def test_runs_that_differ_in_their_seed_alone_are_one_curve_with_an_interval(tmp_path):
  for seed in (1, 2, 3):
    copy = tmp_path / f'run-{seed}'
    shutil.copytree(serving.RUNS[2], copy)
    record = json.loads((copy / 'config.json').read_text())
    record['config'] |= {'seed': seed, 'run_dir': str(copy)}
    (copy / 'config.json').write_text(json.dumps(record))
    table = copy / 'logs' / 'evaluator-0.csv'
    header, *rows = table.read_text().splitlines()
    place = header.split(',').index('evaluator_return')
    cells = [row.split(',') for row in rows]
    for row in cells:
      row[place] = str(float(seed))
    table.write_text('\n'.join([header, *map(','.join, cells)]) + '\n')
  curves = State([*(str(tmp_path / f'run-{seed}') for seed in (1, 2, 3)), str(serving.RUNS[0])])
  first, second = curves.read()['curves']
  assert first['runs'] == [0, 1, 2] and second['runs'] == [3]
  assert first['mean'] == pytest.approx([2.0] * 100)
  # Student's t of 2 degrees of freedom, 4.303, times the standard error of 1, 2 and 3.
  assert first['high'][0] - 2.0 == pytest.approx(4.303 / 3**0.5, rel=1e-3)
  assert first['averaged'] == 3 and 'mean' not in second


def test_a_run_whose_directory_is_gone_keeps_its_last_state_and_the_others_go_on(tmp_path):
  copies = [tmp_path / 'a', tmp_path / 'b']
  for copy in copies:
    shutil.copytree(serving.RUNS[0], copy)
  state = State(list(map(str, copies)))
  before = state.read()['runs']
  shutil.rmtree(copies[0])
  gone, other = state.read()['runs']
  assert gone == before[0] | {'state': 'its directory is gone'}
  assert other == before[1]


def test_a_run_that_has_recorded_nothing_yet_is_shown(tmp_path):
  shutil.copy(serving.RUNS[0] / 'config.json', tmp_path)
  run = State([str(tmp_path)]).read()['runs'][0]
  assert run['nodes'] == [] and run['timeline'] == []
  assert run['verdict']['bottleneck'] == 'unknown'


def test_the_newest_of_the_videos_is_the_one_of_most_steps_whatever_the_clock_says(tmp_path):
  run_dir = tmp_path / 'run'
  run_dir.mkdir()
  shutil.copy(serving.RUNS[0] / 'config.json', run_dir)
  for steps in (1_000, 2_000):
    videos.write(str(run_dir), steps, steps, b'GIF89a' + bytes(4), 9)
  os.utime(videos.paths(str(run_dir))[-1], (1, 1))
  state = State([str(run_dir)])
  assert state.video(0) == videos.paths(str(run_dir))[-1]
  (run_dir / 'evaluated.gif').write_bytes(b'GIF89a')
  assert state.video(0) == str(run_dir / 'evaluated.gif')


def _bytes_read():
  with open('/proc/self/io') as f:
    return int(f.readline().split()[1])


def test_a_look_at_a_long_run_reads_the_ends_of_its_files_only(tmp_path):
  run_dir = long_run.make(tmp_path / 'run', hours=6, num_actors=40)
  whole = sum(path.stat().st_size for path in (tmp_path / 'run').rglob('*') if path.is_file())
  before = _bytes_read()
  state = State([run_dir])
  shown = state.read()
  first = _bytes_read() - before
  before = _bytes_read()
  state.read()
  again = _bytes_read() - before
  state.node(0, 'inference_learner/0')
  assert shown['runs'][0]['verdict']['bottleneck'] == 'learner'
  assert sum(name.startswith('actor/') for name, *_ in shown['runs'][0]['nodes']) == 40
  assert whole > 30e6 and first < 6e6 and again < 1e5, (whole, first, again)


@pytest.mark.nightly
def test_a_look_at_a_day_of_a_thousand_actors_reads_little(tmp_path):
  run_dir = long_run.make(tmp_path / 'run', hours=24, num_actors=1000, process_hours=2)
  before = _bytes_read()
  state = State([run_dir])
  state.read()
  first = _bytes_read() - before
  os.utime(tmp_path / 'run' / 'logs' / 'actor-0.csv')  # As if a node had reported.
  before = _bytes_read()
  shown = state.read()
  again = _bytes_read() - before
  assert first < 60e6 and again < 2e6, (first, again)  # Of 2.6 GB; the actors' logs are one file.
  assert long_run.state_bytes(shown) < 100_000


def test_the_page_of_thousands_of_actors_gets_their_counts_and_the_ones_that_differ(tmp_path):
  run_dir = long_run.make(tmp_path / 'run', hours=0.02, num_actors=3000)
  with open(tmp_path / 'run' / 'restarts.csv', 'a') as f:
    f.write(f'{long_run.BEGAN},actor/2900\n')
  state = State([run_dir])
  shown = state.read()
  [run] = shown['runs']
  groups = {group['name']: group for group in run['groups']}
  assert sum(groups['actor']['counts'].values()) == groups['actor']['nodes'] == 3000
  cells = [name for name, *_ in run['nodes'] if name.startswith('actor/')]
  assert len(cells) <= 1024 and 'actor/2900' in cells and 'actor/2999' not in cells
  assert state.node(0, 'actor/2999')['rows']
  assert long_run.state_bytes(shown) < 100_000
  os.utime(tmp_path / 'run' / 'logs' / 'actor-0.csv')  # As if a node had reported.
  before = _bytes_read()
  state.read()
  assert _bytes_read() - before < 500_000  # Some of the actors' logs; they have turns.


@pytest.fixture
def linked(tmp_path):
  """Returns a run directory through a link, and what is outside of it."""
  outside = tmp_path / 'outside'
  shutil.copytree(serving.RUNS[0], outside)
  (outside / 'processes.csv').write_text('time,node,doing\n1,actor/0,secret\n')
  for name in ('restarts.csv', 'logs/actor-0.log', 'logs/actor-0.csv'):
    (outside / name).write_text('5,secret/0\n5,secret/0\n')
  videos.write(str(outside), 1, 1, b'GIF89a' + bytes(4), 9)
  run_dir = tmp_path / 'runs' / 'run'
  shutil.copytree(serving.RUNS[0], run_dir)
  (tmp_path / 'link').symlink_to(tmp_path / 'runs')
  return tmp_path / 'link' / 'run', outside


def _all_of(run_dir):
  state = State([str(run_dir)])
  read = state.read()
  nodes = [state.node(0, node) for node, *_ in read['runs'][0]['nodes']]
  return json.dumps([read, nodes]), state.video(0)


@pytest.mark.parametrize(
  'name',
  ['logs/actor-0.log', 'logs/actor-0.csv', 'processes.csv', 'restarts.csv', 'logs', 'videos'],
)
def test_no_link_leads_out_of_a_run_directory(linked, name):
  run_dir, outside = linked
  path = run_dir / name
  if path.is_dir():
    shutil.rmtree(path)
  else:
    path.unlink(missing_ok=True)
  path.symlink_to(outside / name)
  text, video = _all_of(run_dir)
  assert 'secret' not in text and video == ''


def test_a_run_directory_may_be_reached_through_a_link(linked):
  run_dir, _ = linked
  videos.write(str(run_dir), 1, 1, b'GIF89a' + bytes(4), 9)
  text, video = _all_of(run_dir)
  assert "'learner_steps': 139}" in text and video.endswith('.gif')


def test_a_run_whose_record_is_a_link_is_none(linked):
  run_dir, outside = linked
  (run_dir / 'config.json').unlink()
  (run_dir / 'config.json').symlink_to(outside / 'config.json')
  with pytest.raises(ValueError, match=r'config\.json cannot be read: A symbolic link'):
    State([str(run_dir)])


def test_a_run_whose_record_becomes_unreadable_says_so_and_the_others_go_on(linked):
  run_dir, outside = linked
  state = State([str(run_dir), str(outside)])
  before = state.read()['runs'][1]
  (run_dir / 'config.json').write_text('[' * 10_000)
  damaged, other = state.read()['runs']
  assert damaged['state'].endswith('its config.json cannot be read: it is nested too deeply.')
  assert other == before
