import threading
import time
from concurrent import futures

import jax
import numpy as np
import pytest
from acme.utils.counting import Counter

from agents.types import FIRST
from nodes.inference import InferenceServer
from nodes.layout import layout
from tests.nodes.counter import CounterAgent, CounterEnvironment


class Client:
  """Acts for one stream of a server."""

  def __init__(self, server, environment, actor_id='actor/0', run_id=1, group=0):
    self.server, self.environment = server, environment
    self.identity = actor_id, run_id, group
    self.sequence = -1
    self.timestep = None

  def step(self):
    """Asks once; returns the actions."""
    if self.timestep is None:
      self.timestep = self.environment.reset()
    else:
      self.timestep = self.environment.step(self.action)
    self.sequence += 1
    self.action = self.ask(self.sequence, self.timestep)
    return self.action

  def ask(self, sequence, timestep):
    return self.server.step(*self.identity, sequence, *timestep)


class Sink:
  """Keeps the unrolls that a server emits, copied, and hands the arrays back."""

  def __init__(self):
    self.unrolls = []

  def __call__(self, unroll, release):
    self.unrolls.append(jax.tree.map(np.copy, unroll))
    release()


@pytest.fixture
def make_server():
  servers = []

  def make(streams, agent=None, batch_size=8, timeout=0.002, seed=0, sink=None):
    sink = sink or Sink()
    spec = CounterEnvironment([1]).spec()
    agent = agent or CounterAgent()
    server = InferenceServer(
      agent, streams, jax.local_devices()[:1], spec, sink, Counter(), 1, batch_size, timeout, seed
    )
    server.set_params(0, np.float32(0))
    server.compile()
    server.start()
    servers.append(server)
    return server, sink

  yield make
  for server in servers:
    server.close()


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


def test_answers_do_not_depend_on_the_company(make_server):
  def run(streams, interleave):
    server, sink = make_server(streams, batch_size=6)
    client = Client(server, CounterEnvironment([3, 5]))
    others = [Client(server, CounterEnvironment([2, 4]), 'actor/1') for _ in range(interleave)]
    for _ in range(21):
      threads = [threading.Thread(target=c.step) for c in [client, *others]]
      [t.start() for t in threads]
      [t.join() for t in threads]
    return [u for u in sink.unrolls if u.environment_id[0] == 0]

  alone = run(layout(1, 2, 1), 0)
  together = run(layout(2, 2, 1), 1)
  assert len(alone) == len(together) == 5
  for a, b in zip(alone, together, strict=True):
    for name, values in a.extras.items():
      np.testing.assert_array_equal(values, b.extras[name])


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


def test_a_restarted_actor_resets_its_own_slots_only(make_server):
  server, sink = make_server(layout(2, 2, 1))
  old = Client(server, CounterEnvironment([100, 100]), 'actor/0', run_id=1)
  other = Client(server, CounterEnvironment([100, 100]), 'actor/1', run_id=9)
  for _ in range(7):
    old.step()
    other.step()
  # The new life begins in the middle of an episode, as after a lost connection: nothing but the new
  # run_id tells the server to forget.
  new = Client(server, CounterEnvironment([100, 100]), 'actor/0', run_id=2)
  new.environment.reset()
  for _ in range(3):
    new.timestep = new.environment.step(None)
  new.action = new.ask(0, new.timestep)
  new.sequence = 0
  for _ in range(6):
    new.step()
    other.step()
  mine = [u for u in sink.unrolls if u.environment_id[0] == 0]
  theirs = [u for u in sink.unrolls if u.environment_id[0] == 2]
  np.testing.assert_array_equal(mine[0].extras['count'][0], [0, 1, 2, 3, 4])
  np.testing.assert_array_equal(mine[1].core_state['count'], [0, 0])
  np.testing.assert_array_equal(mine[1].timestep.observation[0, :, 0], [3, 4, 5, 6, 7])
  np.testing.assert_array_equal(mine[1].extras['count'][0], [0, 1, 2, 3, 4])
  for unroll in theirs:
    np.testing.assert_array_equal(unroll.extras['count'], unroll.timestep.observation[..., 0])
  measured = server.measure(1.0)
  assert measured['restarts'] == 1
  assert measured['rows_dropped'] == 2 * 2
  assert old.ask(7, old.environment.step(None)) is None, 'a replaced life was served'


def test_a_late_request_of_an_earlier_life_or_step_changes_nothing(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([100, 100]), run_id=5)
  # The server has never seen this life: it asked the server's own predecessor.
  dead = Client(server, CounterEnvironment([3, 3]), run_id=4)
  for _ in range(6):
    first = client.timestep
    client.step()
    assert dead.step() is None
    if first is not None:
      client.ask(client.sequence - 1, first)
  assert server.measure(1.0)['restarts'] == 0
  np.testing.assert_array_equal(sink.unrolls[0].extras['count'][0], [0, 1, 2, 3, 4])
  assert server.actor_steps == 12


def test_a_request_that_loses_its_place_to_a_copy_is_to_be_sent_again(make_server):
  """Copies that waited for the server's start get to the stream in any order."""
  server, _ = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([100, 100]))
  timestep = client.environment.reset()
  stream = server._streams['actor/0', 0][0]
  with futures.ThreadPoolExecutor(2) as pool:
    with stream.turn(1, 0):
      awaited = pool.submit(client.ask, 0, timestep)
      end = time.monotonic() + 60
      while stream._waiting is None:
        assert time.monotonic() < end
      given_up = pool.submit(client.ask, 0, timestep)
      with pytest.raises(RuntimeError, match='ask again'):
        awaited.result(60)
    np.testing.assert_array_equal(given_up.result(60), client.ask(0, timestep))
  assert server.actor_steps == 2


def test_a_request_that_is_sent_again_gets_the_same_answer_and_changes_nothing(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([100, 100]))
  for _ in range(12):
    action = client.step()
    np.testing.assert_array_equal(client.ask(client.sequence, client.timestep), action)
  assert len(sink.unrolls) == 2
  for unroll in sink.unrolls:
    np.testing.assert_array_equal(unroll.extras['count'], unroll.timestep.observation[..., 0])
  assert server.actor_steps == 24


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
  device = server._devices[0]
  compiled = device.compiled_shapes
  clients = [Client(server, CounterEnvironment([3, 5]), f'actor/{i}') for i in range(2)]
  clients.append(Client(server, CounterEnvironment([3, 5, 4]), 'evaluator/0'))
  for version in range(5):
    server.set_params(version, np.float32(version))
    threads = [threading.Thread(target=c.step) for c in clients]
    [t.start() for t in threads]
    [t.join() for t in threads]
    clients[0].step()
  assert device.compiled_shapes == compiled == 2


def test_bad_requests_are_refused_in_one_sentence(make_server):
  server, _ = make_server(layout(1, 2, 1))
  environment = CounterEnvironment([3, 5])
  good = environment.reset()
  with pytest.raises(ValueError, match="declared for 'actor/7'"):
    server.step('actor/7', 1, 0, 0, *good)
  with pytest.raises(ValueError, match=r'sent observation as float32\[2, 3\]'):
    server.step('actor/0', 1, 0, 0, *good._replace(observation=np.zeros((2, 3), np.float32)))
  with pytest.raises(ValueError, match='reward that is not finite'):
    server.step('actor/0', 1, 0, 0, *good._replace(reward=np.array([0, np.nan], np.float32)))


def test_actors_are_told_to_stop_when_training_has_finished_and_evaluators_are_served(make_server):
  server, _ = make_server(layout(1, 2, 1, eval_envs=2))
  actor = Client(server, CounterEnvironment([3, 5]))
  actor.step()
  server.finish_training()
  assert actor.step() is None
  assert Client(server, CounterEnvironment([3, 5]), 'evaluator/0').step() is not None
