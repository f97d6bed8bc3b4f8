"""The supervision, over nodes that do what each test says."""

import dataclasses
import io
import math
import os
import signal
import types

import pytest

from launchers import logs, restart, streams, supervise, watched
from launchers.child_process import EXITED_EARLY
from launchers.heartbeat import Beat
from launchers.placement import Resources
from launchers.stop_requests import STACKS, STACKS_OF_STUCK, StopRequests
from rundir.errors import NonRetryableError
from tests.terminals import FORBIDDEN, HOSTILE

BEAT = Beat('playing', 1.0, 0.0, 1.0, 10.0, 1.0, 5, 5)
RESTARTED = Resources(restart='on_failure', restart_backoff=0.0)
OF_A_JOB = dataclasses.replace(RESTARTED, one_job=True)


class Node:
  """Ends as `ends` says, one entry a start, None for not at all; obeys what it is sent."""

  def __init__(self, log_path, *ends, beats=((BEAT, 0.0),), resources=RESTARTED, name='node/0'):
    self.name, self.log_path, self.resources = name, str(log_path), resources
    self._ends, self._beats = list(ends), beats
    self._restarts = 0
    self._code = self._ends[0]
    self.sent = []
    self.stopped = False
    self.refuses_to_start = []

  def exit_code(self):
    return self._code

  def ending(self):
    return watched.describe_exit(self._code)

  def beat(self):
    return self._beats[min(self._restarts, len(self._beats) - 1)]

  def is_stopped(self):
    return self.stopped

  def send(self, number):
    if self._code is None:
      self.sent.append(number)
      if number in (signal.SIGTERM, signal.SIGKILL):
        self._code = -number

  def can_restart(self):
    return True

  def restart(self):
    if self.refuses_to_start:
      raise self.refuses_to_start.pop()
    self._restarts += 1
    self._code = self._ends[self._restarts]


@pytest.fixture
def log(tmp_path):
  path = tmp_path / 'node.log'
  path.write_text('')
  return path


def _supervise(*nodes, out=None, requests=(), node_timeout=math.inf, **callbacks):
  out = out or io.StringIO()
  code = supervise.supervise(
    nodes, StopRequests(requests), out, supervise.RunCallbacks(**callbacks), node_timeout
  )
  return code, out.getvalue() if not out.closed else ''


@pytest.mark.parametrize(
  'beat, age, asked, why',
  [
    (BEAT, 31.0, STACKS_OF_STUCK, 'has sent no heartbeat for 31 s'),
    (None, 121.0, STACKS, 'has sent no heartbeat for 121 s'),
    (
      dataclasses.replace(BEAT, unmarked=31.0),
      0.0,
      STACKS,
      'has made no progress for 31 s (playing)',
    ),
  ],
)
def test_a_node_that_hangs_writes_its_stacks_and_is_killed(log, monkeypatch, beat, age, asked, why):
  monkeypatch.setattr(watched, 'STACKS_SECONDS', 0.0)
  monkeypatch.setattr(supervise, '_SUSPENDED_SECONDS', 1e9)
  node = Node(log, None, 0, beats=((beat, age), (BEAT, 0.0)))
  _attentive_for(monkeypatch, 1000.0)
  code, output = _supervise(node, node_timeout=30.0)
  assert code == 0 and node.sent == [asked, signal.SIGKILL]
  assert f'node node/0 {why}, longer than --node_timeout=30 allows; killing it' in output
  assert str(log) in output


def test_a_node_that_a_signal_has_stopped_is_killed_without_a_word_about_stacks(log, monkeypatch):
  node = Node(log, None, 0, beats=((BEAT, 31.0), (BEAT, 0.0)))
  node.stopped = True
  _attentive_for(monkeypatch, 1000.0)
  code, output = _supervise(node, node_timeout=30.0)
  assert code == 0 and node.sent == [signal.SIGKILL]
  assert 'killing it, because a signal such as SIGSTOP has stopped its process' in output
  assert 'stacks' not in output


def test_a_program_is_accepted_before_anything_is_done_about_its_nodes(log):
  node, seen = Node(log, 1, resources=Resources()), []
  accepted = lambda: seen.append('accepted')  # noqa: E731
  assert _supervise(node, accepted=accepted, ended=lambda: seen.append('ended'))[0] == 1
  assert seen == ['accepted', 'ended']


@pytest.mark.parametrize(
  'node_code, requests, code', [(0, (), 0), (1, (), 1), (None, (signal.SIGINT,), 130)]
)
def test_the_caller_is_called_once_every_node_has_ended(log, node_code, requests, code):
  node, ends = Node(log, node_code, resources=Resources()), []
  ended = lambda: ends.append(node.exit_code() is not None)  # noqa: E731
  assert _supervise(node, requests=requests, ended=ended)[0] == code
  assert ends == [True]


@pytest.mark.parametrize(
  'beat, age',
  [
    (BEAT, 29.0),
    (None, 119.0),
    (dataclasses.replace(BEAT, unmarked=1000.0, progress_factor=1e9), 0.0),
  ],
)
def test_a_node_that_waits_or_starts_is_left_alone(log, monkeypatch, beat, age):
  node = Node(log, None, beats=((beat, age),))
  _attentive_for(monkeypatch, 1000.0)
  looks = []

  def look(beats):
    looks.append(beats)
    node._code = 0

  assert _supervise(node, node_timeout=30.0, beats=look) == (0, '')
  assert looks and node.sent == []


@pytest.mark.parametrize(
  'attentive, suspended',
  [
    (20.0, 0.0),  # It has watched for less than the timeout since it went on.
    (1000.0, 1000.0),  # It goes on now.
  ],
)
def test_a_launcher_that_was_suspended_blames_no_node(log, monkeypatch, attentive, suspended):
  node = Node(log, None, beats=((BEAT, 500.0),))

  def look(beats):
    node._code = 0

  _attentive_for(monkeypatch, attentive, suspended)
  assert _supervise(node, node_timeout=30.0, beats=look) == (0, '')


def _attentive_for(monkeypatch, seconds, suspended=0.0):
  init = supervise._Supervision.__init__

  def earlier(self, *args):
    init(self, *args)
    self._attentive_since -= seconds
    self._last_tick -= suspended

  monkeypatch.setattr(supervise._Supervision, '__init__', earlier)


def test_a_node_that_hung_for_long_has_no_clean_record(log, monkeypatch):
  now = [1000.0]
  monkeypatch.setattr(watched, 'time', types.SimpleNamespace(monotonic=lambda: now[0]))
  resources = dataclasses.replace(RESTARTED, max_restarts=1)
  node = Node(log, None, beats=((BEAT, restart.STEADY_SECONDS + 30.0),), resources=resources)
  seen = watched.Watched(node)
  assert seen._record.delay(-signal.SIGKILL, 1.0) is not None
  now[0] += restart.STEADY_SECONDS + 35.0
  assert 'has sent no heartbeat for 90 s' in seen.kill_if_hung(30.0, math.inf)
  now[0] += watched.STACKS_SECONDS
  assert seen.kill_if_hung(30.0, math.inf) == '' and node.exit_code() == -signal.SIGKILL
  assert seen.schedule_restart(-signal.SIGKILL) == ''


@pytest.mark.parametrize('works, restarts', [(False, False), (True, True)])
def test_only_work_gives_a_clean_record_and_not_a_long_start_up(log, monkeypatch, works, restarts):
  now = [1000.0]
  monkeypatch.setattr(watched, 'time', types.SimpleNamespace(monotonic=lambda: now[0]))
  node = Node(log, *4 * [1])
  seen = watched.Watched(node)

  def lives(*doing, has_worked=False):
    for name in doing:
      node._beats = ((dataclasses.replace(BEAT, doing=name, has_worked=has_worked), 0.0),)
      seen.listen()
      now[0] += restart.STEADY_SECONDS
      seen.listen()

  sentence = ''
  for _ in range(restart.MAX_EXCEPTIONS):
    lives('running', 'compiling', 'waiting for replay')
    if works:  # Too shortly for a heartbeat, and a wait after the first work counts as work.
      lives('waiting for replay', has_worked=True)
    now[0] += 1.0
    sentence = seen.schedule_restart(1)
    seen.restart_if_due()
  assert bool(sentence) == restarts


def test_a_node_that_exited_unasked_is_restarted(log):
  code, output = _supervise(Node(log, EXITED_EARLY, 0))
  assert code == 0
  assert 'node node/0 exited with code 0 before its work was done; restarting' in output


def test_a_failed_start_is_retried_and_is_no_exception_of_the_node(log):
  node = Node(log, 1, 0)
  node.refuses_to_start = [OSError(11, 'Resource temporarily unavailable')] * 5
  code, output = _supervise(node)
  assert code == 0
  assert output.count('cannot be restarted ([Errno 11] Resource temporarily unavailable)') == 5


def test_a_node_that_can_never_restart_ends_the_program_cleanly(log):
  other = Node(log, None, name='other/0')
  node = Node(log, -9, resources=dataclasses.replace(RESTARTED, max_restarts=2))
  node.refuses_to_start = [OSError(12, 'Cannot allocate memory')] * 9
  code, output = _supervise(node, other)
  assert code == supervise.FAILED and other.sent == [signal.SIGTERM]
  assert 'error: node node/0 cannot be restarted ([Errno 12] Cannot allocate memory)' in output


def _job(log, *ends):
  """Returns the nodes of a job on two machines, which end as `ends` say."""
  return [
    Node(log, *each, resources=OF_A_JOB, name=f'learner/{i} on h{i}') for i, each in enumerate(ends)
  ]


def test_the_nodes_of_a_job_restart_together_and_others_stay(log):
  job = _job(log, [None, 0], [-9, 0], [None, 0])
  stay = [Node(log, None, name='replay/0')]
  stay.append(Node(log, None, resources=OF_A_JOB, name='other_job/0'))
  restarted = []

  def note(name):
    restarted.append(name)
    for node in stay:
      node._code = 0

  code, output = _supervise(*job, *stay, restarted=note)
  assert code == 0
  assert [node.sent for node in (*job, *stay)] == [[signal.SIGKILL], [], [signal.SIGKILL], [], []]
  assert [node._restarts for node in (*job, *stay)] == [1, 1, 1, 0, 0]
  assert restarted == [node.name for node in job]
  said = (
    'node learner/1 on h1 was killed by SIGKILL; restarting all 3 nodes of its job in 0 s (1 of 20'
  )
  assert output.count('restart') == 2 and said in output


def test_a_node_that_raises_when_another_of_its_job_is_lost_is_not_the_failure(log, monkeypatch):
  monkeypatch.setattr(watched, 'CAUSE_SECONDS', 1e9)
  first, other = job = _job(log, [1, 0], [None, 0])

  def look(beats):  # Its end becomes known later than that of the first.
    if not other._restarts:
      other._code = -9

  code, output = _supervise(*job, beats=look)
  assert code == 0 and first._restarts == other._restarts == 1
  assert 'node learner/1 on h1 was killed by SIGKILL; restarting all 2' in output
  assert '(1 of 20 restarts in a row)' in output and 'learner/0' not in output


def test_a_node_of_a_job_that_raises_is_the_failure_if_the_others_only_wait(log, monkeypatch):
  monkeypatch.setattr(watched, 'CAUSE_SECONDS', 0.0)
  code, output = _supervise(*_job(log, [None, 0], [1, 0]))
  assert code == 0
  assert 'node learner/1 on h1 exited with code 1; restarting all 2 nodes of its job' in output


@pytest.mark.parametrize('exceptions', [restart.MAX_EXCEPTIONS - 1, restart.MAX_EXCEPTIONS])
def test_a_failure_of_all_nodes_of_a_job_counts_once(log, exceptions):
  code, output = _supervise(*_job(log, *2 * [[*exceptions * [1], 0]]))
  assert code == (supervise.FAILED if exceptions == restart.MAX_EXCEPTIONS else 0)
  assert output.count('restarting all 2') == restart.MAX_EXCEPTIONS - 1


def test_a_failure_that_no_restart_can_fix_is_named_before_those_that_it_causes(log):
  code, output = _supervise(*_job(log, [1], [NonRetryableError.exit_code]))
  assert code == supervise.FAILED
  assert 'error: node learner/1 on h1 exited with code 2' in output and 'restarting' not in output


def test_a_job_restarts_again_if_one_of_its_nodes_cannot_be_started(log):
  started, refused = job = _job(log, [None, None, 0], [-9, 0])
  refused.refuses_to_start = [OSError(11, 'Resource temporarily unavailable')]
  code, output = _supervise(*job)
  assert code == 0 and started.sent == [signal.SIGKILL, signal.SIGKILL]
  assert 'node learner/1 on h1 cannot be restarted ([Errno 11]' in output


def test_a_job_ends_the_program_if_one_of_its_nodes_turns_out_to_be_lost(log, monkeypatch):
  monkeypatch.setattr(watched, 'CAUSE_SECONDS', 0.0)
  first, lost = job = _job(log, [1], [None])
  lost.can_restart = lambda: lost._code is None
  code, output = _supervise(*job)
  assert code == supervise.FAILED and first._restarts == 0
  assert 'error: node learner/1 on h1 was killed by SIGKILL' in output


def test_thousands_of_nodes_have_their_turns_and_none_is_forgotten(log, monkeypatch):
  monkeypatch.setattr(supervise, '_TICK_SECONDS', 0.0)
  looks = []

  class Counted(Node):
    def beat(self):
      looks[-1] += 1
      return super().beat()

  nodes = [Counted(log, None, 0, name=f'node/{i}') for i in range(1000)]
  nodes[-1]._code = -9
  begin = supervise._Supervision._handle_requests

  def next_tick(self):
    looks.append(0)
    if len(looks) == 40:
      for node in nodes:
        node._code = 0
    begin(self)

  monkeypatch.setattr(supervise._Supervision, '_handle_requests', next_tick)
  restarted = []
  assert _supervise(*nodes, restarted=restarted.append)[0] == 0
  assert restarted == ['node/999']
  assert 0 < max(looks) <= 250  # The work of a tick, which ten a second do.


def test_of_many_failures_the_first_cause_is_named_even_if_its_turn_comes_later(log):
  nodes = [Node(log, None, resources=Resources(), name=f'node/{i}') for i in range(300)]
  nodes[0]._code, nodes[-1]._code = 1, -9
  code, output = _supervise(*nodes)
  assert code == supervise.FAILED and 'error: node node/299 was killed by SIGKILL' in output


def test_a_closed_terminal_ends_nothing(log):
  out = io.StringIO()
  out.close()
  node = Node(log, -9, 0)
  assert _supervise(node, out=out)[0] == 0
  assert node._restarts == 1


def test_a_terminal_that_nobody_reads_holds_back_no_restart(log, unread, monkeypatch):
  monkeypatch.setattr(streams, 'CLOSE_SECONDS', 0.0)
  node = Node(log, -9, 0)
  assert supervise.supervise([node], StopRequests(), unread.file) == 0
  assert node._restarts == 1
  assert 'node node/0 was killed by SIGKILL; restarting' in unread.text()


def test_a_view_may_fail(log):
  def fail(*args):
    raise RuntimeError('no terminal')

  code, output = _supervise(Node(log, -9, 0), beats=fail, restarted=fail)
  assert code == 0 and "RuntimeError('no terminal')" in output


def test_an_exception_of_the_supervision_stops_every_node_cleanly(log):
  other = Node(log, None, name='other/0')
  broken = Node(log, -9, name='broken/0')
  broken.can_restart = types.MethodType(lambda self: 1 / 0, broken)
  with pytest.raises(ZeroDivisionError):
    _supervise(broken, other)
  assert other.sent == [signal.SIGTERM]


@pytest.mark.parametrize(
  'number, code',
  [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGUSR1, 138), (signal.SIGTERM, 143)],
)
def test_every_request_to_stop_is_obeyed_in_order(log, number, code):
  node = Node(log, None)
  assert _supervise(node, requests=[number])[0] == code
  assert node.sent == [signal.SIGTERM]


def test_a_node_that_sigkill_does_not_end_is_named_and_left(log, monkeypatch):
  monkeypatch.setattr(supervise, 'STOP_SECONDS', 0.0)
  node = Node(log, None)
  node.send = lambda number: node.sent.append(number)
  code, output = _supervise(node, requests=[signal.SIGTERM])
  assert code == 143 and 'SIGKILL has not ended node/0' in output
  assert output.count('killed 0 s after SIGTERM: node/0 (playing); a checkpoint') == 1


def test_every_node_writes_its_stacks_when_asked(log):
  node, requests = Node(log, None), StopRequests()
  requests.stacks = True

  def look(beats):
    node._code = 0

  assert (
    supervise.supervise([node], requests, io.StringIO(), supervise.RunCallbacks(beats=look)) == 0
  )
  assert node.sent == [STACKS]


def test_a_node_that_runs_no_python_is_asked_for_its_stacks_in_another_way(log):
  node, requests = Node(log, None, beats=((BEAT, 6.0),)), StopRequests()
  requests.stacks = True

  def look(beats):
    node._code = 0

  callbacks = supervise.RunCallbacks(beats=look)
  assert supervise.supervise([node], requests, io.StringIO(), callbacks) == 0
  assert node.sent == [STACKS_OF_STUCK]


@pytest.mark.parametrize(
  'later, sent',
  [
    ([(100.1, None, 0.0), (100.2, BEAT, 0.1), (105.2, BEAT, 5.1)], [STACKS, STACKS_OF_STUCK]),
    ([(101.2, BEAT, 0.1), (106.3, BEAT, 5.1)], [STACKS]),
  ],
)
def test_a_beat_of_before_the_request_for_stacks_may_arrive_after_it(log, monkeypatch, later, sent):
  node, clock = Node(log, None), [100.0]
  monkeypatch.setattr(watched.time, 'monotonic', lambda: clock[0])
  one = watched.Watched(node)
  node._beats = ((None, 0.0),)
  one.write_stacks()
  for clock[0], *beat in later:
    node._beats = (tuple(beat),)
    one.insist_on_stacks()
  assert node.sent == sent


@pytest.mark.parametrize(
  'code, words',
  [(3, 'exited with code 3'), (-9, 'was killed by SIGKILL'), (-125, 'was killed by signal 125')],
)
def test_every_exit_code_has_words(code, words):
  assert watched.describe_exit(code) == words


@pytest.mark.slow
def test_a_log_that_grows_fast_is_bounded_at_every_look(log):
  node, sizes = Node(log, None, 0), []

  def look(beats):
    sizes.append(log.stat().st_size)
    os.truncate(log, logs.MAX_BYTES + 1)
    if len(sizes) == 4:
      node._code = 0

  assert _supervise(node, beats=look)[0] == 0
  assert sizes == [0] * 4


def test_a_traceback_that_is_printed_does_not_control_the_terminal(log):
  log.write_text(f'Traceback (most recent call last):\n  \tline\nRuntimeError: {HOSTILE}\n')
  code, output = _supervise(Node(log, 1, resources=Resources()))
  assert code == 1 and 'pwned' in output and '\n  \tline\n' in output
  assert not [each for each in FORBIDDEN if each in output.encode()]
