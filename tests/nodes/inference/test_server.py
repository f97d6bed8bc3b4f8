"""An inference server: what it answers, and the unrolls that it makes."""

import threading

import numpy as np
import pytest

from agents.types import FIRST
from nodes.inference.layout import layout
from tests.nodes.counter import CounterAgent, CounterEnvironment
from tests.nodes.inference_clients import DEADLINE, Client, step_together


@pytest.mark.parametrize('rows, period', [(5, 4), (9, 4)])
def test_every_unroll_carries_the_state_before_its_first_row(make_server, rows, period):
  server, sink = make_server(layout(1, 3, 1), CounterAgent(rows, period))
  client = Client(server, CounterEnvironment([3, 5, 100]))
  for _ in range(60):
    client.step()
  assert len(sink.unrolls) == len(range(0, 60 - rows + 1, period))
  checked = 0
  for unroll in sink.unrolls:
    first = unroll.timestep.step_type[:, 0] == FIRST
    counter = unroll.timestep.observation[:, 0, 0]
    # What the agent stored before a FIRST row is the last episode's; the reset belongs to the row.
    np.testing.assert_array_equal(unroll.core_state['count'][~first], counter[~first])
    checked += np.count_nonzero(~first)
    np.testing.assert_array_equal(unroll.extras['count'], unroll.timestep.observation[..., 0])
  assert checked >= 20


def test_parameters_are_stamped_on_the_rows_they_acted_in(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([3, 5]))
  for version in range(30):
    server.set_params(version, np.float32(version))
    client.step()
  for unroll in sink.unrolls:
    np.testing.assert_array_equal(unroll.extras['params'], unroll.policy_version)
    np.testing.assert_array_equal(np.diff(unroll.policy_version, axis=1), 1)


def test_replies_do_not_depend_on_the_rest_of_the_batch(make_server):
  def run(env_groups, interleave, threads=0):
    server, sink = make_server(env_groups, batch_size=6, threads=threads)
    client = Client(server, CounterEnvironment([3, 5]))
    others = [Client(server, CounterEnvironment([2, 4]), 'actor/1') for _ in range(interleave)]
    for _ in range(21):
      step_together([client, *others])
    return [u for u in sink.unrolls if u.environment_id[0] == 0]

  alone = run(layout(1, 2, 1), 0)
  for together in (run(layout(2, 2, 1), 1), run(layout(2, 2, 1), 1, threads=3)):
    assert len(alone) == len(together) == 5
    for a, b in zip(alone, together, strict=True):
      for name, values in a.extras.items():
        np.testing.assert_array_equal(values, b.extras[name])


@pytest.mark.slow
def test_random_numbers_do_not_depend_on_the_devices_and_no_two_of_these_share_any(make_server):
  def noise(num_devices):
    env_groups = layout(2, 4, 2, eval_envs=2)
    server, sink = make_server(env_groups, num_devices=num_devices)
    clients = [
      Client(server, CounterEnvironment([9, 9]), s.actor_id, 1, s.group) for s in env_groups
    ]
    for _ in range(5):
      step_together(clients)
    unrolls = sorted(sink.unrolls, key=lambda unroll: unroll.environment_id[0])
    return np.concatenate([unroll.extras['noise'] for unroll in unrolls])

  one, two = noise(1), noise(2)
  assert one.shape == (8, 5) and len(np.unique(one)) == 40
  np.testing.assert_array_equal(one, two)


def test_two_environments_and_two_moments_get_different_random_numbers(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([3, 5]))
  for _ in range(5):
    client.step()
  noise = sink.unrolls[0].extras['noise']
  assert len(np.unique(noise)) == noise.size


def test_exploration_follows_the_environment_and_evaluators_have_their_own(make_server):
  server, sink = make_server(layout(2, 2, 1, eval_envs=3))
  for actor in ('actor/1', 'actor/0'):
    client = Client(server, CounterEnvironment([3, 5]), actor)
    for _ in range(5):
      client.step()
  for unroll in sink.unrolls:
    np.testing.assert_array_equal(unroll.extras['exploration'][:, 0], unroll.environment_id)
  evaluator = Client(server, CounterEnvironment([3, 5, 7]), 'evaluator/0')
  steps = server.actor_steps
  for _ in range(12):
    evaluator.step()
  assert len(sink.unrolls) == 2, 'the rows of an evaluator were stored'
  assert server.actor_steps == steps, 'the steps of an evaluator were counted'


def test_an_evaluation_is_no_restart(make_server):
  server, _ = make_server(layout(1, 2, 1, eval_envs=2))
  for incarnation in (1, 2):
    Client(server, CounterEnvironment([3, 5]), 'evaluator/0', incarnation).step()
  assert server.measure(1.0)['restarts'] == 0


def test_every_group_gets_replies_and_every_row_is_kept(make_server):
  env_groups = layout(8, 2, 2)
  server, sink = make_server(env_groups, batch_size=4, timeout=0.001)

  def act(group):
    client = Client(server, CounterEnvironment([3 + group.group]), group.actor_id, 1, group.group)
    for _ in range(101):
      assert client.step() is not None

  threads = [threading.Thread(target=act, args=(group,)) for group in env_groups]
  [thread.start() for thread in threads]
  [thread.join(DEADLINE) for thread in threads]
  assert len(sink.unrolls) == 16 * 25
  for unroll in sink.unrolls:
    np.testing.assert_array_equal(unroll.extras['count'], unroll.timestep.observation[..., 0])


def test_actor_steps_count_executed_decisions(make_server):
  server, _ = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([3, 100]))
  for _ in range(8):  # Environment 0 goes F M M L F M M L: two of its answers are never executed.
    client.step()
  assert server.actor_steps == 8 + 6


def test_a_partial_batch_is_flushed_when_an_actor_has_died(make_server):
  server, sink = make_server(layout(2, 2, 1), batch_size=4, timeout=0.01)
  dead = Client(server, CounterEnvironment([3, 5]), 'actor/0')
  dead.step()
  alive = Client(server, CounterEnvironment([3, 5]), 'actor/1')
  for _ in range(5):
    alive.step()
  assert len(sink.unrolls) == 1


def test_nothing_is_compiled_after_warm_up(make_server):
  server, _ = make_server(layout(2, 2, 1, eval_envs=3), batch_size=4)
  [device] = server.devices
  compiled = device.compiled_shapes
  clients = [Client(server, CounterEnvironment([3, 5]), f'actor/{i}') for i in range(2)]
  clients.append(Client(server, CounterEnvironment([3, 5, 4]), 'evaluator/0'))
  for version in range(5):
    server.set_params(version, np.float32(version))
    step_together(clients)
    clients[0].step()
  assert device.compiled_shapes == compiled == 2
