"""Clients in the inference server's own process."""

import threading

import numpy as np
import pytest

from environments.catch import Catch
from nodes.inference.layout import layout
from nodes.inference.socket_server import SocketServer
from nodes.runtime import lifecycle
from tests.nodes.counter import CounterEnvironment
from tests.nodes.inference_clients import Client, Sink
from tests.waiting import DEADLINE, wait_until


def policy_of(server, group=0, incarnation=1, should_stop=lambda: False, actor='actor/0'):
  return server.policy(actor, incarnation, group, should_stop)


def step(policy, environment, steps):
  """Steps an environment from its beginning; returns the actions, the last of which is awaited."""
  policy.send(environment.reset())
  actions = [policy.receive()]
  for _ in range(steps):
    policy.send(environment.step(actions[-1]))
    actions.append(policy.receive())
  return np.array(actions)


@pytest.mark.parametrize('clients_serve', [True, False])  # As on CPUs, and on accelerators.
def test_each_group_gets_its_own_replies_in_order_beside_clients_with_sockets(
  make_server, monkeypatch, clients_serve
):
  monkeypatch.setattr('nodes.inference.server.clients_serve', lambda devices: clients_serve)
  server, sink = make_server(layout(2, 4, 2), batch_size=8)
  policies = [policy_of(server, group) for group in (0, 1)]
  environments = [CounterEnvironment([3, 5]), CounterEnvironment([7, 2])]
  other = Client(server, CounterEnvironment([4, 4]), 'actor/1')
  timesteps = [environment.reset() for environment in environments]
  for _ in range(20):
    for policy, timestep in zip(policies, timesteps, strict=True):
      policy.send(timestep)
    other.send_step()
    for i, policy in enumerate(policies):
      action = policy.receive()
      # The agent's action is the number of rows that it has seen of this episode.
      np.testing.assert_array_equal(action, timesteps[i].observation[:, 0] % 4)
      timesteps[i] = environments[i].step(action)
    other.action = other.receive()
  unrolls = [u for u in sink.unrolls if u.environment_id[0] == 2]  # Of the second group.
  assert len(unrolls) == 4
  np.testing.assert_array_equal(unrolls[0].timestep.observation[0, :, 0], range(5))
  np.testing.assert_array_equal(unrolls[0].timestep.observation[1, :, 0], [0, 1, 2, 0, 1])


def test_nothing_that_passes_is_copied():
  inbox, arrays = SocketServer(), Catch(3, 0).reset()
  connection = inbox.connect_in_process()
  connection.request(('run', *arrays))
  ((known, message),) = inbox.poll(None)
  assert known is connection and message[-1] is arrays.observation
  inbox.reply(connection, arrays.reward)
  assert connection.receive(DEADLINE)[0] is arrays.reward
  inbox.close()


def test_a_message_ends_the_wait_for_sockets():
  inbox, polled = SocketServer(), []
  thread = threading.Thread(target=lambda: polled.extend(inbox.poll(None)))
  thread.start()
  connection = inbox.connect_in_process()
  connection.request(('run',))
  thread.join(DEADLINE)
  polled += inbox.poll(0.0)
  assert polled == [(connection, ('run',))]
  inbox.close()


def test_a_refusal_is_raised_and_says_why(make_server):
  server, _ = make_server(layout(1, 2, 1))
  policy = policy_of(server)
  policy.send(CounterEnvironment([3, 5]).reset()._replace(reward=np.full(2, np.nan, np.float32)))
  with pytest.raises(
    ValueError, match='an environment of actor/0 returned a reward that is not fin'
  ):
    policy.receive()
  policy = policy_of(server, actor='actor/7')
  policy.send(CounterEnvironment([3, 5]).reset())
  with pytest.raises(ValueError, match="no environments were declared for 'actor/7'"):
    policy.receive()


def test_a_newer_incarnation_replaces_one_that_has_not_closed(make_server):
  server, sink = make_server(layout(1, 2, 1))
  step(old := policy_of(server), CounterEnvironment([100, 100]), 2)
  step(policy_of(server, incarnation=2), CounterEnvironment([100, 100]), 5)
  old.send(CounterEnvironment([100, 100]).reset())
  with pytest.raises(ValueError, match='another process acts as actor/0'):
    old.receive()
  np.testing.assert_array_equal(sink.unrolls[0].timestep.observation[0, :, 0], range(5))


def test_the_end_of_training_and_of_the_server_end_the_wait_for_replay(make_server):
  server, _ = make_server(layout(1, 2, 1), sink=(sink := Sink()))
  sink.free = False
  environment = CounterEnvironment([100, 100])
  step(policy := policy_of(server), environment, 8)
  policy.send(environment.step(None))  # Its unroll has nowhere to go.
  wait_until(lambda: server.deferred_requests)
  server.finish_training()
  assert policy.receive() is None

  server, _ = make_server(layout(1, 2, 1))
  policy = policy_of(server)
  server.close()
  with pytest.raises(lifecycle.Stopped):
    policy.receive()
  with pytest.raises(lifecycle.Stopped):
    policy_of(server)


def test_a_stop_ends_the_wait_for_a_server_that_does_not_reply(make_server):
  server, _ = make_server(layout(2, 2, 1), batch_size=4, timeout=DEADLINE)
  policies = [policy_of(server, actor=f'actor/{i}') for i in (0, 1)]
  environment = CounterEnvironment([9, 9])
  step(policies[0], environment, 0)  # Alone so far.
  for policy in reversed(policies):  # The first one's request fills the batch.
    policy.send(environment.reset())
  for policy in policies:
    policy.receive()
  stopped = policy_of(server, incarnation=2, should_stop=lambda: True)
  stopped.send(CounterEnvironment([9, 9]).reset())  # It waits for the other, to fill the batch.
  with pytest.raises(lifecycle.Stopped):
    stopped.receive()


def test_the_error_of_the_server_is_raised_in_its_clients(make_server):
  class Broken(Sink):
    def put(self, unroll, release):
      raise OSError('the sink is broken')

  server, _ = make_server(layout(1, 2, 1), sink=Broken())
  with pytest.raises(OSError, match='the sink is broken'):
    step(policy_of(server), CounterEnvironment([100, 100]), 8)
