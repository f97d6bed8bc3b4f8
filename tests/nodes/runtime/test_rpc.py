"""Calls to a real Courier server that is slow, fails, or is about to be away."""

import pytest

from agents.seeding import Seed
from launchers import binding
from nodes.inference import codec
from nodes.inference.client import ServerAddress
from nodes.inference.options import ServingOptions
from nodes.inference_learner import InferenceLearner
from nodes.runtime import lifecycle, rpc
from nodes.runtime.counters import ActingTotals


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


def test_any_other_error_is_raised(connect):
  client = connect(Server(ValueError('not this one')))
  with pytest.raises(Exception, match='not this one'):
    rpc.call(client.futures.ask, lambda: False, 'ask')


def test_no_call_is_retried_once_the_program_stops(connect):
  client = connect(Server(rpc.retry_later_error()))
  with pytest.raises(lifecycle.Stopped):
    rpc.call(client.futures.ask, lambda: True, 'ask')


def test_a_failing_inference_learner_makes_no_actor_or_relabeller_exit(broken_learner):
  (port,) = binding.free_ports(1)
  node = InferenceLearner(
    **broken_learner,
    env_groups=[],
    port=port,
    serving=ServingOptions((0,), 1, 1.0, False, 1, '', Seed(0)),
  )
  connection = ServerAddress(f'localhost:{port}').connect()
  connection.send(codec.pack('actor/0', 1, 0, 0))
  with pytest.raises(OSError, match='the environment is broken'):
    node.run()
  with pytest.raises(ConnectionError):
    connection.receive()
  with pytest.raises(RuntimeError, match='ask again'):
    node.fetch(None, '', 'relabeller/0', 1, ActingTotals())
