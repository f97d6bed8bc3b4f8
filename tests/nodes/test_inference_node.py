"""An inference node without its learner."""

import types
from concurrent import futures

import pytest

from agents.seeding import Seed
from nodes.inference.options import InferenceOptions
from nodes.inference.serving import Serving
from nodes.inference_node import InferenceNode
from nodes.runtime.counters import ActingTotals
from tests.nodes.counter import CounterAgent, CounterEnvironment
from tests.ports import unused_port


class Learner:
  """Replies to the first fetch and not to the second."""

  def __init__(self):
    self.futures, self.asked = self, 0

  def fetch(self, *args):
    self.asked += 1
    reply = futures.Future()
    if self.asked == 1:
      reply.set_result((False, (1, 0), None, 0.0))
    return reply


class Agent(CounterAgent):
  def init(self, key):
    return types.SimpleNamespace(params=key)


class Server:
  """Fails once the learner does not reply."""

  def __init__(self, learner):
    self._learner = learner
    self.compile = self.start = self.finish_training = self.close = lambda: None
    self.set_params = lambda version, params: None
    self.totals = ActingTotals

  def check(self):
    if self._learner.asked == 2:
      raise TimeoutError('a batch hangs')


def test_a_failure_of_the_service_is_noticed_while_the_learner_is_away(monkeypatch):
  learner = Learner()
  monkeypatch.setattr('nodes.inference_node.make_server', lambda *args, **kwargs: Server(learner))
  node = InferenceNode(
    lambda *specs: Agent(),
    lambda num_envs, seed: CounterEnvironment([3]),
    Serving([], InferenceOptions(one_core=False), Seed(0), num_environments=1),
    learner,
    [],
    None,
    port=unused_port(),
    name='inference/0',
    update_period=0.0,
  )
  with pytest.raises(TimeoutError, match='a batch hangs'):
    node.run()
