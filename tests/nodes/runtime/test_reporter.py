"""What nodes tell the monitor, and what they notice while they do."""

import threading
import types
from concurrent import futures

import pytest

from nodes.runtime import lifecycle
from nodes.runtime import reporter as reporter_lib
from nodes.runtime.reporter import Reporter


class Monitor:
  def __init__(self):
    self.finished = threading.Event()

  def report_training_finished(self, node, values):
    self.finished.set()

  def alive(self, node):
    return True


class Recording:
  """A client that keeps the futures of `finished`."""

  def __init__(self, client):
    self.futures, self.sent, self._client = self, [], client

  def finished(self):
    self.sent.append(self._client.futures.finished())
    return self.sent[-1]


class Client:
  """A client whose questions are answered at once, and whose reports are not."""

  def __init__(self):
    self.futures, self.reports, self.questions = self, [], 0

  def report(self, node, values, *restarts):
    self.reports.append((futures.Future(), values, *restarts))
    return self.reports[-1][0]

  def count(self, node, values, *restarts):
    return self.report(node, values, *restarts)

  def finished(self):
    self.questions += 1
    answer = futures.Future()
    answer.set_result(True)
    return answer


@pytest.fixture
def clock(monkeypatch):
  """The reporter's clock; a test sets `now`."""
  clock = types.SimpleNamespace(now=10.0, monotonic=lambda: clock.now)
  monkeypatch.setattr(reporter_lib, 'time', clock)
  return clock


@pytest.mark.slow
@pytest.mark.parametrize('answers', [True, False])
def test_a_node_that_waits_for_the_end_notices_that_its_service_has_failed(connect, answers):
  monitor = Monitor()
  block = threading.Event()
  if not answers:
    monitor.report_training_finished = lambda node, values: block.wait(60)
  checks = []

  def check():
    checks.append(monitor.finished.is_set())
    if len(checks) > 2 and checks[-1] is answers:
      raise OSError('the service has failed')

  with (
    Reporter(connect(monitor), 'inference_learner/0') as reporter,
    pytest.raises(OSError, match='the service has failed'),
  ):
    reporter.report_finished_until_stopped({}, threading.Event(), check)
  block.set()
  assert monitor.finished.is_set() is answers


def test_a_failure_while_the_program_stops_is_ignored(connect):
  stop = threading.Event()

  def check():
    assert not stop.is_set()
    stop.set()

  with Reporter(connect(Monitor()), 'anakin/0') as reporter:
    reporter.report_finished_until_stopped({}, stop, check)


def test_the_end_is_repeated_until_the_program_stops(connect):
  stop, repeated = threading.Event(), []

  def repeat():
    repeated.append(True)
    if len(repeated) == 2:
      stop.set()
    reply = futures.Future()
    reply.set_result(None)
    return reply

  with Reporter(connect(Monitor()), 'anakin/0') as reporter:
    reporter.report_finished_until_stopped({}, stop, repeat=repeat)
  assert len(repeated) == 2


def test_leaving_the_context_waits_for_the_pending_reply(connect, monkeypatch):
  monkeypatch.setattr(Reporter.close, '__defaults__', (60.0,))
  monitor, asked, answer = Monitor(), threading.Event(), threading.Event()

  def finished():
    asked.set()
    answer.wait(60)
    return True

  monitor.finished = finished
  client = Recording(connect(monitor))
  with Reporter(client, 'actor/0', period=0.0) as reporter:
    reporter.poll_training_finished()
    assert asked.wait(60)
    answer.set()
  [pending] = client.sent
  assert pending.done()


def test_a_report_that_waits_for_its_reply_holds_no_question_back():
  client = Client()
  reporter = Reporter(client, 'replay/0', period=0.0)
  for _ in range(3):
    reporter.maybe_report()
    reporter.poll_training_finished()
  assert reporter.training_finished
  assert (len(client.reports), client.questions) == (1, 3)
  client.reports[0][0].set_result(None)
  reporter.maybe_report()
  assert len(client.reports) == 2


def test_a_restarted_node_says_which_restart_it_is_and_at_once_with_which_counters_it_begins(
  clock, monkeypatch
):
  monkeypatch.setenv(lifecycle.RESTART_COUNT_VARIABLE, '2')
  client = Client()
  reporter = Reporter(client, 'learner/0', lambda seconds: {'loss': 1.0}, period=2.0)
  reporter.count({'actor_steps': 1})
  client.reports[0][0].set_result(None)
  clock.now = 13.0
  reporter.maybe_report()
  assert [report[1:] for report in client.reports] == [({'actor_steps': 1}, 2), ({'loss': 1.0}, 2)]


def test_counters_share_the_period_of_reports_and_rates_begin_with_the_context(clock):
  client = Client()
  reporter = Reporter(client, 'learner/0', lambda seconds: {'seconds': seconds}, period=2.0)
  reporter.maybe_count({'actor_steps': 1})
  clock.now = 13.0
  reporter.maybe_count({'actor_steps': 2})
  client.reports[0][0].set_result(None)
  clock.now = 14.0
  reporter.maybe_count({'actor_steps': 3})
  clock.now = 20.0
  with reporter:
    clock.now = 23.0
    reporter.maybe_report()
    client.reports[1][0].set_result(None)
  assert [values for _, values in client.reports] == [{'actor_steps': 2}, {'seconds': 3.0}]


def test_reports_are_as_rare_as_the_monitor_asks_until_it_is_away(clock):
  client, sent = Client(), []
  reporter = Reporter(client, 'actor/0', lambda seconds: {'seconds': seconds}, period=2.0)

  def report_until(end, answer):
    while clock.now < end:
      reporter.maybe_report()
      for reply, values, *_ in client.reports:
        if not reply.done():
          sent.append((clock.now, values['seconds']))
          answer(reply)
      clock.now += 0.5

  report_until(50.0, lambda reply: reply.set_result(20.0))
  assert sent == [(12.0, 2.0), (32.0, 20.0)]
  report_until(75.0, lambda reply: reply.set_exception(OSError('away')))
  assert sent[2:] == [(52.0, 20.0), (72.0, 20.0), (74.0, 2.0)]


def test_there_is_one_report_and_one_question_in_a_period(clock):
  client = Client()
  reporter = Reporter(client, 'replay/0', lambda seconds: {'seconds': seconds}, period=2.0)
  for _ in range(27):
    reporter.maybe_report()
    reporter.poll_training_finished()
    for answer, _ in client.reports:
      if not answer.done():
        answer.set_result(None)
    clock.now += 0.25
  assert [values for _, values in client.reports] == [{'seconds': 2.0}] * 3
  assert client.questions == 3
