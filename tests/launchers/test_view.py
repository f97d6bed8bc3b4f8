import dataclasses
import io
import math
import shlex
import types

import pytest
from rich.console import Console

from launchers import bottleneck, nodes_view, view
from launchers.heartbeat import Beat
from nodes.runtime import activity
from tests.graphs import graph
from tests.waiting import wait_until

# Names of the user's choice: only the roles say what the nodes do.
GRAPH = graph(trainer=['inference', 'learner'], player=['actor'])

STATUS = {
  'elapsed': 61.0,
  'since_first_step': 30.0,
  'first_actor_steps': 50.0,
  'restarts': 2,
  'problem': '',
  'losses': [],
  'num_steps': 1000,
  'finished': False,
  'counts': {'actor_steps': 250.0, 'environment_frames': 1000.0, 'learner_steps': 12.0},
  'waiting': {'learner/0': 'compiling (0:01:40)'},
  'graph': GRAPH,
  'latest': {
    'trainer/0': {
      'actor_steps_per_second': 8.0,
      'environment_frames_per_second': 32.0,
      'policy_lag_mean': 1.25,
      'inference_batch_fill': 0.5,
      'replay_size': 7.0,
      'exploration_min': 1.0,
      'exploration_max': 1.0,
    },
    'player/0': {'policy_lag_mean': 99.0},
  },
}


BEAT = Beat('running', 61.0, 0.0, 1.0, 12.0, 3.0, 5, 6)


def test_a_program_without_a_monitor_shows_its_nodes():
  assert nodes_view.as_line({}, 0) == 'starting'
  assert nodes_view.as_line({'a/0': BEAT, 'a/1': BEAT}, 3) == 'nodes=2 restarts=3'
  console = Console(width=100, record=True, file=io.StringIO())
  console.print(nodes_view.as_table('title', {'a/1': BEAT, 'a/0': BEAT}, {'a/1': 3}))
  rows = [line.split() for line in console.export_text().splitlines() if 'a/' in line]
  assert [[word for word in row if word != '│'] for row in rows] == [
    ['a/0', 'running', '0:01:01', '3', '12', '-'],
    ['a/1', 'running', '0:01:01', '3', '12', '3'],
  ]


def test_a_large_group_has_a_row_for_each_activity():
  compiling = dataclasses.replace(BEAT, doing='compiling', seconds=3.0)
  beats = {f'a/{i}': BEAT if i % 4 else compiling for i in range(4096)} | {'b/0': BEAT}
  console = Console(width=100, record=True, file=io.StringIO())
  console.print(nodes_view.as_table('title', beats, {'a/1': 3, 'a/2': 1}))
  rows = [line.split() for line in console.export_text().splitlines() if ' 0:' in line]
  assert [' '.join(word for word in row if word != '│') for row in rows] == [
    'a x 3,072 running 0:01:01 9,216 36,864 4',
    'a x 1,024 compiling 0:00:03 3,072 12,288 -',
    'b/0 running 0:01:01 3 12 -',
  ]


def test_a_log_line_has_what_was_measured_and_the_nodes_long_at_one_thing():
  line = view.as_line(STATUS)
  assert shlex.split(line) == [
    'elapsed=0:01:01',
    'remaining=0:01:52',
    'restarts=2',
    'progress=25%',
    'actor_steps=250',
    'environment_frames=1,000',
    'learner_steps=12',
    'steps/s=8',
    'frames/s=32',
    'policy_lag=1.2',
    'batch_fill=50%',
    'replay_size=7',
    'exploration=1',
    'learner/0=compiling (0:01:40)',
  ]
  assert 'learner' not in view.as_line(STATUS | {'waiting': {}}).replace('learner_steps', '')


def test_compiling_and_restoring_are_shown_before_other_activities_and_not_for_all_of_many_nodes(
  capsys,
):
  def doing(name, seconds):
    return dataclasses.replace(BEAT, doing=name, seconds=seconds)

  activities = [each for each in vars(activity).values() if isinstance(each, activity.Activity)]
  work = [each.name for each in activities if each.is_work]
  assert {'playing', 'running the compiled loop'} < set(work)
  status = {**STATUS, 'finished': True}
  shown = view.View(
    types.SimpleNamespace(status=status), 'title', {}, GRAPH, log_period=0.01, live=False
  )
  shown.beats(
    {
      'actor/0': doing('waiting for actions', 59.0),
      **{f'actor/{i}': doing(name, 100.0) for i, name in enumerate(work, 1)},
      'learner/0': doing('compiling', 6.0),
      'learner/1': doing('compiling', 4.0),
      'learner/2': doing('restoring a checkpoint', 7.0),
      'replay/0': doing('waiting for a reply from Reverb', 61.0),
      'replay/1': doing('waiting for a reply from Reverb', 62.0),
      'replay/2': doing('waiting for a reply from Reverb', 63.0),
    }
  )
  shown.start()
  printed = []
  wait_until(lambda: printed.append(capsys.readouterr().out) or ''.join(printed).count('\n') > 1)
  shown.close()
  assert shlex.split(''.join(printed).splitlines()[1])[-4:] == [
    'learner/0=compiling (0:00:06)',
    'learner/2=restoring a checkpoint (0:00:07)',
    'replay/0=waiting for a reply from Reverb (0:01:01)',
    'others=2 more',
  ]


def test_what_the_restart_of_a_learner_has_lost_is_said_once(capsys):
  follower = types.SimpleNamespace(status=STATUS | {'losses': ['learner/0 has lost 7']})
  shown = view.View(follower, 'title', {}, GRAPH, log_period=0.01, live=False)
  shown.start()
  errors = []

  def said():
    errors.append(capsys.readouterr().err)
    return ''.join(errors).splitlines()

  wait_until(said)
  follower.status = follower.status | {'losses': ['learner/0 has lost 7', 'learner/0 has lost 9']}
  wait_until(lambda: len(said()) > 1)
  shown.close()
  assert said() == ['warning: learner/0 has lost 7', 'warning: learner/0 has lost 9']


def test_what_was_lost_just_before_the_end_is_said_at_the_end(capsys):
  follower = types.SimpleNamespace(status=STATUS | {'losses': ['learner/0 has lost 7']})
  shown = view.View(follower, 'title', {}, GRAPH, log_period=3600, live=False)
  shown.start()
  shown.close()
  assert capsys.readouterr().err.splitlines() == ['warning: learner/0 has lost 7']


def test_a_program_that_starts_says_how_many_of_its_nodes_work(capsys):
  follower = types.SimpleNamespace(status=None, has_monitor=True)
  shown = view.View(follower, 'title', {}, GRAPH, log_period=0.01, live=False)
  shown.beats({'trainer/0': BEAT, 'player/0': dataclasses.replace(BEAT, has_worked=True)})
  shown.start()
  lines = []

  def said():
    lines.extend(capsys.readouterr().out.splitlines())
    return lines

  wait_until(lambda: len(said()) > 1)
  shown.close()
  assert lines == ['title', 'starting (1 of 2 nodes work)']


def test_rates_of_replicas_are_added_up():
  first = STATUS['latest']['trainer/0']
  second = {'actor_steps_per_second': 2.0, 'replay_size': 3.0, 'policy_lag_mean': 1.25}
  line = view.as_line(STATUS | {'latest': {'trainer/0': first, 'trainer/1': second}})
  for word in ('steps/s=10', 'replay_size=10', 'policy_lag=1.2', 'frames/s=32'):
    assert word in line.split()


def test_what_a_learner_and_its_inference_nodes_both_report_counts_once():
  apart = graph(server=['inference'], trainer=['learner'])
  latest = {
    'server/0': {'actor_steps_per_second': 3.0, 'inference_batch_fill': 0.5},
    'server/1': {'actor_steps_per_second': 4.0, 'inference_batch_fill': 0.5},
    'trainer/0': {'actor_steps_per_second': 7.0},
  }
  line = view.as_line(STATUS | {'graph': apart, 'latest': latest})
  assert {'steps/s=7', 'batch_fill=50%'} <= set(line.split())


def test_the_table_shows_the_same_and_names_nodes_long_at_one_thing():
  console = Console(width=100, record=True, file=open('/dev/null', 'w'))  # noqa: SIM115
  console.print(view.as_table('title', STATUS))
  text = console.export_text()
  for word in (
    'title',
    'remaining',
    '0:01:52',
    'policy_lag',
    '1.2',
    'learner/0 compiling (0:01:40)',
  ):
    assert word in text


@pytest.mark.parametrize('num_steps', [10**12, 10**18, 2**63 - 1, 10**30, 10**400])
def test_a_number_of_steps_that_no_run_reaches_is_shown(num_steps):
  line = view.as_line(STATUS | {'num_steps': num_steps})
  assert 'progress=0%' in line
  assert ('remaining=over 100 years' in line) == (num_steps < 10**400)


def test_an_invalid_time_is_shown():
  for elapsed, text in ((-5.0, '-1 day, 23:59:55'), (math.inf, ''), (1e300, 'over 100 years')):
    line = view.as_line(STATUS | {'elapsed': elapsed})
    assert line.startswith(f'elapsed={text}' if text else 'remaining')


def test_nothing_is_remaining_once_training_has_finished_and_nothing_is_known_before_it_began():
  assert view.remaining(STATUS | {'finished': True}) == 0
  unknown = STATUS | {'counts': STATUS['counts'] | {'actor_steps': 0.0}, 'since_first_step': 0.0}
  assert math.isnan(view.remaining(unknown))


def test_a_machine_that_other_processes_fill_is_named_in_the_line(monkeypatch, capsys):
  clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
  monkeypatch.setattr(view, 'time', clock)
  means = {'learner/0': {'learner_waiting_share': 0.9, 'actor_steps': 1.0}}
  follower = types.SimpleNamespace(status=STATUS | {'latest': means})
  shown = view.View(follower, 'title', {'cpu_cores': 4}, GRAPH, log_period=0.01, live=False)
  for clock.now, idle in ((0.0, 20.0), (10.0, 21.0)):
    shown.beats({'actor/0': dataclasses.replace(BEAT, idle_seconds=idle, host='here')})
  shown.start()
  printed = []
  wait_until(lambda: printed.append(capsys.readouterr().out) or 'bottleneck=' in ''.join(printed))
  shown.close()
  assert 'bottleneck=machine' in ''.join(printed).split()


def test_the_bottleneck_is_named_in_the_line_and_explained_below_the_table():
  means = {'learner/0': {'learner_waiting_share': 0.01, 'replay_size': 32.0}}
  verdict = bottleneck.of_program(means, {'queue_size': 32}, GRAPH)
  status = STATUS | {'verdict': verdict}
  assert 'bottleneck=learner' in view.as_line(status).split()
  console = Console(width=200, record=True, file=open('/dev/null', 'w'))  # noqa: SIM115
  console.print(view.as_table('title', status))
  text = ' '.join(console.export_text().split())
  assert 'replay is full and the learner never waits' in text
