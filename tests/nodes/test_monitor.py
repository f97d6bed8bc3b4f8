import csv
import json
import math
import types

import pytest

from nodes import monitor as monitor_lib
from nodes.monitor import Monitor
from nodes.runtime import lifecycle
from rundir import curves, node_files
from tests.rundir import drawn

FINAL = {'actor_steps': 1000, 'environment_frames': 4000, 'learner_steps': 9}


def read(monitor, tmp_path, *columns):
  """Returns what `curves.read` does, once what was reported has been written."""
  assert monitor.flush()
  return curves.read(str(tmp_path), *columns)


@pytest.fixture
def clock(monkeypatch):
  """The monitor's clock; a test sets `now`."""
  clock = types.SimpleNamespace(now=100.0, monotonic=lambda: clock.now, time=lambda: 0.0)
  monkeypatch.setattr(monitor_lib, 'time', clock)
  return clock


@pytest.fixture
def monitor(tmp_path):
  return Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])


def test_reports_are_absolute_so_a_repeated_one_changes_nothing(monitor):
  report = {'actor_steps': 40.0, 'environment_frames': 160.0, 'learner_steps': 2.0, 'loss': 0.5}
  for _ in range(2):
    monitor.report('inference_learner/0', report)
  monitor.report('inference_learner/0', report | {'actor_steps': 30.0})  # Overtaken on the way.
  status = monitor.status()
  assert status['counts'] == {'actor_steps': 40, 'environment_frames': 160, 'learner_steps': 2}


def test_the_view_keeps_the_last_finite_value(monitor):
  monitor.report('inference_learner/0', {'episode_return': 3.0, 'loss': 1.0})
  monitor.report('inference_learner/0', {'episode_return': math.nan, 'loss': 2.0})
  assert monitor.status()['latest']['inference_learner/0'] == {'episode_return': 3.0, 'loss': 2.0}


MOVING = {'actor_steps_per_second': 50.0, 'learner_steps_per_second': 2.0, 'loss': 0.5}
STILL = MOVING | {'actor_steps_per_second': 0.0, 'learner_steps_per_second': 0.0}


def _counts(steps):
  return {'actor_steps': steps, 'environment_frames': 4 * steps, 'learner_steps': steps / 20}


def test_a_learner_that_restarts_has_its_own_counters_and_what_is_lost_is_said(monitor):
  monitor.report('peer/0', MOVING | _counts(400.0))
  monitor.report('peer/1', MOVING | _counts(500.0))
  monitor.report('actor/0', {'steps': 1.0}, 3)  # A node without counters loses none.
  for _ in range(2):  # Courier may repeat a call.
    monitor.count('peer/1', _counts(0.0), 1)
  status = monitor.status()
  assert status['counts'] == _counts(400.0)
  assert status['latest']['peer/0'] == MOVING | _counts(400.0)
  assert STILL.items() <= status['latest']['peer/1'].items()
  assert status['losses'] == [
    'peer/1 has no checkpoint yet: training starts from scratch, 500 steps are lost'
  ]
  monitor.report('peer/1', MOVING | _counts(1000.0), 1)
  monitor.count('peer/1', _counts(900.0), 2)
  monitor.count('peer/1', _counts(900.0), 3)  # The same checkpoint again: nothing more is lost.
  status = monitor.status()
  assert status['losses'][1:] == ['peer/1 continues at 900 actor steps: 100 are lost']
  assert status['counts']['actor_steps'] == 1300


def test_the_rest_of_the_time_is_computed_from_the_restart_of_a_learner_on(monitor, clock):
  monitor.report('learner/0', _counts(0.0))
  clock.now = 150.0
  monitor.report('learner/0', _counts(500.0))
  monitor.count('learner/0', _counts(300.0), 1)
  clock.now = 160.0
  monitor.report('learner/0', _counts(400.0), 1)
  status = monitor.status()
  assert (status['first_actor_steps'], status['since_first_step']) == (300.0, 10.0)


def test_the_rates_of_a_silent_node_become_0_in_every_view(tmp_path, clock, monkeypatch):
  monitor, seen = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0']), {}

  def training():
    """What nodes report while the monitor looks at its clock, which it does at each yield."""
    for now in range(100, 121):
      clock.now = float(now)
      if now <= 103 or now == 119:
        monitor.report('learner/0', MOVING | _counts(float(now)))
      if now in (100, 108):  # One call of the compiled loop takes so long.
        monitor.report('anakin/0', MOVING)
      yield False
      latest = monitor.status()['latest']
      seen[now] = [latest[node]['actor_steps_per_second'] for node in ('learner/0', 'anakin/0')]
    yield True

  calls = training()
  stop = types.SimpleNamespace(wait=lambda seconds: next(calls))
  monkeypatch.setattr('nodes.runtime.lifecycle.stop_event', lambda: stop)
  monitor.run()
  assert seen[113] == [50, 50] and seen[114] == seen[118] == [0, 50] and seen[120] == [50, 50]
  rates = curves.read(str(tmp_path), 'learner/0', 'actor_steps', 'actor_steps_per_second')
  assert rates == [(100, 50), (101, 50), (102, 50), (103, 50), (103, 0), (119, 50)]


def test_the_view_has_the_steps_and_the_time_of_every_learners_first_report(tmp_path, clock):
  monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'], num_learners=2)

  def seen():
    status = monitor.status()
    return status['first_actor_steps'], status['since_first_step'], status['elapsed']

  clock.now = 105.0
  monitor.report('actor/0', {'waiting_share': 0.5})
  assert seen() == (0.0, 0.0, 5.0)
  monitor.report('inference_learner/0', {'actor_steps': 40.0})
  clock.now = 108.0
  monitor.report('inference_learner/1', {'actor_steps': 30.0})
  monitor.report('inference_learner/0', {'actor_steps': 90.0})
  assert seen() == (70.0, 3.0, 8.0)
  assert monitor.flush()


def test_counters_before_the_first_report_start_neither_the_clock_nor_the_log(monitor, tmp_path):
  for _ in range(2):
    monitor.count('learner/0', {'actor_steps': 40, 'learner_steps': 7})
  status = monitor.status()
  assert status['counts'] == {'actor_steps': 40, 'environment_frames': 0, 'learner_steps': 7}
  assert (status['first_actor_steps'], status['since_first_step'], status['latest']) == (0, 0, {})
  monitor.report('learner/0', {'actor_steps': 50.0, 'loss': 0.5})
  assert monitor.status()['first_actor_steps'] == 50
  assert read(monitor, tmp_path, 'learner/0', 'actor_steps', 'loss') == [(50.0, 0.5)]


def test_a_large_group_is_asked_to_report_seldom_and_a_learner_beside_it_is_not(monitor):
  periods = [monitor.report(f'actor/{i}', {'waiting_share': 0.5}) for i in range(4096)]
  assert periods[0] < 1 and all(15 <= period <= 26 for period in periods[-10:])
  assert len(set(periods[-10:])) > 1  # Or those that begin together report together for ever.
  assert monitor.report('learner/0', _counts(20.0)) < 1
  status = monitor.status()
  assert len(status['latest']) < 200  # The view asks for it twice a second.
  assert status['latest']['learner/0'] == _counts(20.0)
  assert status['latest']['actor/0'] == {'waiting_share': 0.5}


def test_the_view_has_every_node_that_learns_however_many_there_are(monitor):
  for i in range(300):
    monitor.report(f'peer/{i}', _counts(20.0) | MOVING)
  status = monitor.status()
  assert len(status['latest']) == 300
  assert status['counts'] == _counts(6000.0) | {'learner_steps': 1.0}


def test_progress_tells_evaluators_when_training_has_finished(monitor):
  monitor.report('inference_learner/0', {'actor_steps': 40.0})
  assert monitor.progress() == {'actor_steps': 40.0, 'finished': False}
  monitor.report_training_finished('inference_learner/0', FINAL)
  assert monitor.progress() == {'actor_steps': 1000, 'finished': True}


def test_csv_and_picture_have_counters_beside_every_report(monitor, tmp_path, monkeypatch):
  monitor.report('inference_learner/0', {'environment_frames': 160.0, 'episode_return': 1.5})
  monitor.report('evaluator/0', {'evaluator_return': 2.5, 'evaluator_return_stderr': 0.1})
  assert monitor.flush()
  with open(node_files.csv_path(str(tmp_path), 'evaluator/0')) as f:
    [row] = csv.DictReader(f)
  assert float(row['environment_frames']) == 160 and float(row['evaluator_return']) == 2.5
  assert read(monitor, tmp_path, 'inference_learner/0', 'episode_return') == [(1.5,)]
  figures = drawn.keep_figures(monkeypatch)
  curves.draw(str(tmp_path))
  assert (tmp_path / 'learning_curve.png').read_bytes().startswith(b'\x89PNG')
  [axes] = figures[0].axes
  assert drawn.legend(axes) == ['training, with exploration', 'evaluator']
  training, evaluator, *_ = axes.get_lines()  # And the ends of the error bars.
  assert training.get_xydata().tolist() == [[160.0, 1.5]]
  assert evaluator.get_xydata().tolist() == [[160.0, 2.5]]


def test_actor_steps_of_replicas_are_added_up_and_learner_steps_are_not(monitor, tmp_path):
  for _ in range(2):
    for replica, steps in enumerate((40.0, 50.0)):
      report = {
        'actor_steps': steps,
        'environment_frames': 4 * steps,
        'learner_steps': 3.0 + replica,
      }
      monitor.report(f'inference_learner/{replica}', report | {'episode_return': 1.0})
  total = {'actor_steps': 90, 'environment_frames': 360, 'learner_steps': 4}
  assert monitor.status()['counts'] == total
  [_, last] = read(monitor, tmp_path, 'inference_learner/0', *total)
  assert last == tuple(total.values())


def test_training_has_finished_when_every_replica_has(tmp_path, monkeypatch):
  monkeypatch.setattr('nodes.runtime.lifecycle.stop_program', lambda: None)
  monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=[], num_learners=2)
  monitor.report_training_finished('inference_learner/1', FINAL | {'params_crc32': 7})
  assert not monitor.progress()['finished']
  monitor.report_training_finished('inference_learner/0', FINAL | {'params_crc32': 7})
  assert monitor.progress() == {'actor_steps': 2000, 'finished': True}
  monitor.run()
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert (summary['actor_steps'], summary['learner_steps']) == (2000, 9)
  assert summary['learners']['inference_learner/0'] == FINAL | {'params_crc32': 7}
  assert list(summary['learners']) == ['inference_learner/0', 'inference_learner/1']


def test_a_run_without_reports_still_gets_a_picture(tmp_path):
  curves.draw(str(tmp_path))
  assert (tmp_path / 'learning_curve.png').exists()


def test_the_summary_is_written_after_the_final_evaluation(tmp_path, monkeypatch):
  stopped = []
  monkeypatch.setattr('nodes.runtime.lifecycle.stop_program', lambda: stopped.append(True))
  monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
  monitor.report_training_finished('inference_learner/0', FINAL)
  monitor.final_evaluation('evaluator/0', {'evaluator_return': 0.75, 'evaluator_episodes': 12.0})
  monitor.run()
  assert stopped
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert summary['evaluator_return'] == 0.75
  assert (summary['actor_steps'], summary['environment_frames']) == (1000, 4000)


def test_measurements_that_cannot_be_written_are_a_problem_until_they_can(tmp_path, monkeypatch):
  monkeypatch.setattr('rundir.recorder._CALM_SECONDS', 0.0)
  (tmp_path / 'logs').write_text('in the way')
  monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
  monitor.report('actor/0', {'steps': 1.0})
  assert monitor.flush()
  assert 'cannot be written' in monitor.status()['problem']
  (tmp_path / 'logs').unlink()
  monitor.report('actor/0', {'steps': 2.0})
  assert monitor.flush()
  assert monitor.status()['problem'] == ''
  assert read(monitor, tmp_path, 'actor/0', 'steps') == [(2.0,)]


def test_a_restarted_monitor_continues_the_same_logs(tmp_path):
  for steps in (10.0, 30.0):
    monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
    monitor.report('inference_learner/0', {'actor_steps': steps})
    assert monitor.flush()
  with open(tmp_path / 'logs' / 'inference_learner-0.csv', 'a') as f:
    f.write('40.0,1')  # Killed within a row.
  monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
  monitor.report('inference_learner/0', {'actor_steps': 50.0})
  rows = read(monitor, tmp_path, 'inference_learner/0', 'actor_steps', 'seconds')
  assert [steps for steps, _ in rows] == [10, 30, 50]
  seconds = [s for _, s in rows]
  assert seconds == sorted(seconds)


def test_a_restarted_monitor_logs_the_last_counters_until_the_learners_have_reported(
  tmp_path, monkeypatch
):
  def counters(node):
    return [steps for (steps,) in read(monitor, tmp_path, node, 'actor_steps')]

  for restarts in range(2):
    monkeypatch.setenv(lifecycle.RESTART_COUNT_VARIABLE, str(restarts))
    monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'], num_learners=2)
    if restarts:  # The call that was under way comes again.
      monitor.report('evaluator/0', {'evaluator_return': 1.0})
      assert monitor.progress()['actor_steps'] == 50
    for node, steps in ('learner/0', 20.0), ('learner/1', 30.0):
      monitor.report(node, _counts(steps + 5.0 * restarts))
    assert monitor.flush()
  assert counters('evaluator/0') == [50]
  assert counters('learner/0') == [20, 50]
  assert counters('learner/1') == [50, 60]
  monitor.count('learner/1', _counts(10.0), 1)
  monitor.report('evaluator/0', {'evaluator_return': 1.0})
  assert counters('evaluator/0') == [50, 35], 'what was lost still counts'


def test_a_repeated_final_evaluation_changes_nothing(tmp_path):
  monitor = Monitor(str(tmp_path), num_steps=1000, evaluators=['evaluator/0'])
  for _ in range(2):
    monitor.final_evaluation('evaluator/0', {'evaluator_return': 1.0})
  assert len(read(monitor, tmp_path, 'evaluator/0', 'evaluator_return')) == 1


@pytest.fixture
def ends(tmp_path, monkeypatch, stop):
  """Returns a function that runs a monitor in a stopping program: whether the monitor had finished."""
  stopped = []
  stop.set()
  monkeypatch.setattr('nodes.runtime.lifecycle.stop_program', lambda: stopped.append(True))

  def run(monitor):
    stopped.clear()
    monitor.run()
    assert (tmp_path / 'summary.json').exists() == bool(stopped)
    return bool(stopped)

  return run


@pytest.mark.slow
@pytest.mark.parametrize(
  'content',
  [
    '',
    '[]',
    '{"num_steps": 9}',
    '{"evaluations": 3, "num_steps": 9}',
    '{"evaluations": {"judge/0": {"evaluator_return": "much"}}, "num_steps": 9}',
    '[' * 100_000,
  ],
)
def test_a_damaged_final_evaluation_is_repeated(tmp_path, ends, content):
  (tmp_path / 'final_evaluation.json').write_text(content)
  monitor = Monitor(str(tmp_path), num_steps=9, evaluators=['evaluator/0'])
  monitor.report_training_finished('anakin/0', {})
  assert not ends(monitor)
  monitor.final_evaluation('evaluator/0', {'evaluator_return': 1.0})
  assert ends(monitor)


def test_the_program_ends_after_the_final_evaluation_of_the_last_of_several_evaluators(
  tmp_path, ends
):
  names = ['a_second/0', 'evaluator/0']
  first = Monitor(str(tmp_path), num_steps=9, evaluators=names)
  first.report_training_finished('trainer/0', {})
  first.final_evaluation('a_second/0', {'evaluator_return': 1.0})
  assert not ends(first)
  again = Monitor(str(tmp_path), num_steps=9, evaluators=names)
  again.report_training_finished('trainer/0', {})
  assert not ends(again)
  again.final_evaluation('evaluator/0', {'evaluator_return': 2.0})
  assert ends(again)
  assert json.loads((tmp_path / 'summary.json').read_text())['evaluator_return'] == 2.0
  for node, value in (('evaluator/0', 2.0), ('a_second/0', 1.0)):
    assert curves.read(str(tmp_path), node, 'evaluator_return') == [(value,)]


def test_every_caller_learns_that_training_has_finished(monitor):
  assert monitor.finished() is False
  monitor.report_training_finished('inference_learner/0', {})
  assert monitor.finished() is True


def test_a_restarted_monitor_knows_the_final_evaluation(tmp_path, ends):
  first = Monitor(str(tmp_path), num_steps=9, evaluators=['evaluator/0'])
  first.final_evaluation('evaluator/0', {'evaluator_return': 2.5})
  # Resumed with more steps.
  longer = Monitor(str(tmp_path), num_steps=10, evaluators=['evaluator/0'])
  longer.report_training_finished('inference_learner/0', {'learner_steps': 7.0})
  assert not ends(longer)
  again = Monitor(str(tmp_path), num_steps=9, evaluators=['evaluator/0'])
  again.report_training_finished('inference_learner/0', {'learner_steps': 7.0})
  assert ends(again)
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert (summary['evaluator_return'], summary['learner_steps']) == (2.5, 7)
