"""Calls to a real Courier server that is slow, fails, or is about to be away."""

import types
from concurrent import futures

import pytest

from agents.seeding import Seed
from nodes.inference import codec
from nodes.inference.client import ServerAddress
from nodes.inference.options import InferenceOptions
from nodes.inference.serving import Serving
from nodes.learner import LearnerNode
from nodes.runtime import lifecycle, rpc
from nodes.runtime.counters import ActingTotals
from tests.ports import unused_port


class Server:
  """Fails with each of the errors it is given, and then answers."""

  def __init__(self, *errors):
    self._errors = list(errors)

  def ask(self):
    if self._errors:
      raise self._errors.pop(0)
    return 'answer'


def test_a_call_is_retried_if_the_server_says_so(connect):
  client = connect(Server(rpc.retry_later_error(), rpc.retry_later_error()))
  assert rpc.call(client.futures.ask, lambda: False, 'ask') == 'answer'


class CallError(Exception):
  """As Courier raises it for a status."""

  def __init__(self, code):
    super().__init__(code)
    self.code = code


@pytest.mark.parametrize('code', ['StatusCode.DEADLINE_EXCEEDED', 'StatusCode.UNAVAILABLE'])
def test_a_server_that_is_slow_or_away_is_asked_again_after_pauses_that_grow(monkeypatch, code):
  pauses, errors = [], [CallError(code) for _ in range(8)]
  monkeypatch.setattr(rpc, 'time', types.SimpleNamespace(sleep=pauses.append))

  def ask():
    answer = futures.Future()
    if errors:
      answer.set_exception(errors.pop())
    else:
      answer.set_result('answer')
    return answer

  assert rpc.call(ask, lambda: False, 'ask') == 'answer'
  longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
  assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))


def test_clients_that_lose_a_server_at_one_time_return_at_different_times():
  clients = [rpc.backoff() for _ in range(1000)]
  attempts = [sum(next(pauses) for _ in range(8)) for pauses in clients]
  in_one_second = max(sum(t <= other < t + 1 for other in attempts) for t in attempts)
  assert in_one_second < 500 and max(attempts) - min(attempts) > 4


def test_any_other_error_is_raised(connect):
  client = connect(Server(ValueError('not this one')))
  with pytest.raises(Exception, match='not this one'):
    rpc.call(client.futures.ask, lambda: False, 'ask')


def test_no_call_is_retried_once_the_program_stops(connect):
  client = connect(Server(rpc.retry_later_error()))
  with pytest.raises(lifecycle.Stopped):
    rpc.call(client.futures.ask, lambda: True, 'ask')


def test_a_failing_inference_learner_makes_no_actor_or_relabeller_exit(broken_learner):
  port = unused_port()
  serving = Serving([], InferenceOptions(), Seed(0), num_environments=1)
  node = LearnerNode(**broken_learner, serving=serving, port=port)
  connection = ServerAddress(f'localhost:{port}').connect()
  connection.send(codec.pack('actor/0', 1, 0, 0))
  with pytest.raises(OSError, match='the environment is broken'):
    node.run()
  with pytest.raises(ConnectionError):
    connection.receive()
  with pytest.raises(RuntimeError, match='retry'):
    node.fetch(None, '', 'relabeller/0', 1, ActingTotals())
