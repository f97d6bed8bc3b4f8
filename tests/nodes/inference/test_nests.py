"""Observations that are nests, from an actor's message to the unrolls of the server."""

import jax
import numpy as np
import pytest

from nodes.inference import codec
from nodes.inference.client import RemotePolicy
from nodes.inference.layout import layout
from tests.nodes.counter import CounterAgent, CounterEnvironment
from tests.nodes.inference_clients import Client
from tests.nodes.nested import NestedCounter, nest_of


class SeesTheCount(CounterAgent):
  """Records what it sees of a nest."""

  def act(self, params, core_state, timestep, exploration, keys):
    output = super().act(params, core_state, timestep, exploration, keys)
    return output._replace(extras=output.extras | {'seen': timestep.observation['goal'][0]})


@pytest.fixture
def connected(make_server):
  """Returns a server of nests, what takes its unrolls, and a policy with its environment."""
  server, sink = make_server(layout(1, 2, 1), SeesTheCount(), environment=NestedCounter)
  policy = RemotePolicy(server, 'actor/0', 5, 0, lambda: False)
  yield sink, policy, NestedCounter([3, 100])
  policy.close()


def test_a_nest_arrives_in_unrolls_as_it_was_seen_and_acted_on(connected):
  sink, policy, environment = connected
  timestep = environment.reset()
  for _ in range(30):
    policy.send(timestep)
    timestep = environment.step(policy.receive())
  assert len(sink.unrolls) == 7
  for unroll in sink.unrolls:
    count = unroll.extras['seen']
    jax.tree.map(np.testing.assert_array_equal, unroll.timestep.observation, nest_of(count))
    same = jax.tree.map(
      lambda a, b: a.dtype == b.dtype, unroll.timestep.observation, nest_of(count)
    )
    assert jax.tree.all(same)
    first = unroll.timestep.step_type == 0
    np.testing.assert_array_equal(count == 0, first)


@pytest.mark.parametrize(
  'change, said',
  [
    (lambda o: o | {'screen': o['screen'][:, :1]}, r'sent observation/screen as uint8\[2, 1, 3\]'),
    (
      lambda o: o | {'goal': (o['goal'][0], o['goal'][1] / 0)},
      'observation/goal/1 with a value that is not fin',
    ),
    (lambda o: {'screen': o['screen']}, 'sent 4 arrays, but its environment was declared with'),
  ],
)
@pytest.mark.filterwarnings('ignore:divide by zero', 'ignore:invalid value')
def test_a_nest_that_was_not_declared_is_rejected_by_the_name_of_its_leaf(connected, change, said):
  _, policy, environment = connected
  timestep = environment.reset()
  policy.send(timestep._replace(observation=change(timestep.observation)))
  with pytest.raises(ValueError, match=said):
    policy.receive()


def test_the_message_of_a_single_array_is_that_of_its_four_fields(make_server):
  server, _ = make_server(layout(1, 2, 1))
  sent = []

  class Spy:
    def send(self, *question):
      sent.append(codec.pack(*question))

  policy = RemotePolicy(server, 'actor/0', 5, 0, lambda: False)
  policy._conversation = Spy()
  timestep = CounterEnvironment([3, 100]).reset()
  policy.send(timestep)
  assert sent == [codec.pack('', 'actor/0', 5, 0, 0, *timestep)]
  assert Client(server, CounterEnvironment([3, 100])).step() is not None
