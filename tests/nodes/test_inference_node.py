"""An inference node without its learner."""

import types
from concurrent import futures

import pytest

from nodes.inference_node import InferenceNode
from nodes.runtime.counters import ActingTotals


class Learner:
  """Replies to the first fetch and not to the second."""

  def __init__(self):
    self.futures, self.asked = self, 0

  def fetch(self, *args):
    self.asked += 1
    reply = futures.Future()
    if self.asked == 1:
      reply.set_result((False, (1, 0), None))
    return reply


class Server:
  """Fails once the learner does not reply."""

  def __init__(self, learner):
    self._learner = learner
    self.compile = self.start = self.finish_training = lambda: None
    self.set_params = lambda version, params: None
    self.totals = ActingTotals

  def check(self):
    if self._learner.asked == 2:
      raise TimeoutError('a batch hangs')


def test_a_failure_of_the_service_is_noticed_while_the_learner_is_away():
  learner, looks = Learner(), iter(range(100))
  node = types.SimpleNamespace(
    _learner=learner,
    _name='inference/0',
    _update_period=0.0,
    _monitor=None,
    _agent=types.SimpleNamespace(init=lambda key: types.SimpleNamespace(params=key)),
    _options=types.SimpleNamespace(one_core=False),
    _stop=types.SimpleNamespace(is_set=lambda: next(looks, None) is None),
  )
  with pytest.raises(TimeoutError, match='a batch hangs'):
    InferenceNode._serve(node, Server(learner))
