import threading

import jax
import numpy as np
import pytest
from acme.utils.counting import Counter

from agents.types import FIRST
from nodes import lifecycle, wire
from nodes.inference import InferenceServer
from nodes.layout import layout
from tests.nodes.counter import CounterAgent, CounterEnvironment

DEADLINE = 60


class Client:
  """Acts for one stream of a server."""

  def __init__(self, server, environment, actor_id='actor/0', run_id=1, group=0):
    self.environment = environment
    self.connection = server.connect()
    self.connection.set_timeout(DEADLINE)
    self.identity = actor_id, run_id, group
    self.sequence = -1
    self.timestep = None

  def step(self):
    """Asks once; returns the actions."""
    self.send_step()
    self.action = self.receive()
    return self.action

  def send_step(self):
    if self.timestep is None:
      self.timestep = self.environment.reset()
    else:
      self.timestep = self.environment.step(self.action)
    self.sequence += 1
    self.send(self.sequence, self.timestep)

  def ask(self, sequence, timestep):
    self.send(sequence, timestep)
    return self.receive()

  def send(self, sequence, timestep):
    self.connection.send(wire.pack(*self.identity, sequence, *timestep))

  def receive(self):
    while (answer := self.connection.receive()) is None:
      pass
    action, *refusal = wire.unpack(answer)
    if refusal:
      raise ValueError(refusal[0])
    return action


class Sink:
  """Keeps the unrolls that a server emits, copied, and hands the arrays back, if it is `free`."""

  def __init__(self):
    self.unrolls = []
    self.free = True
    self.kept = []

  def __call__(self, unroll, release):
    self.unrolls.append(jax.tree.map(np.copy, unroll))
    if self.free:
      release()
    else:
      self.kept.append(release)


def fill_replay(server, sink):
  """Returns a client whose request waits for replay."""
  sink.free = False
  client = Client(server, CounterEnvironment([100, 100]))
  for _ in range(9):  # Two unrolls: one is with the sink, and the other has nowhere to go.
    client.step()
  client.send_step()
  return client


def step_together(clients):
  for client in clients:
    client.send_step()
  for client in clients:
    client.action = client.receive()


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
      step_together([client, *others])
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


def test_the_answer_goes_where_the_request_came_last(make_server):
  server, _ = make_server(layout(2, 2, 1), batch_size=4, timeout=DEADLINE)
  first = Client(server, CounterEnvironment([100, 100]))
  other = Client(server, CounterEnvironment([100, 100]), 'actor/1')
  first.step()  # Alone so far.
  step_together([other, first])
  first.send_step()  # It waits for the other, whose request would fill the batch.
  again = Client(server, first.environment)
  again.send(first.sequence, first.timestep)
  other.send_step()
  np.testing.assert_array_equal(again.receive(), [2, 2])
  np.testing.assert_array_equal(other.receive(), [1, 1])
  first.connection.set_timeout(0.01)
  with pytest.raises(TimeoutError):
    first.receive()
  assert server.actor_steps == 2 * 3 + 2 * 2


def test_a_new_life_waits_until_the_request_of_the_last_is_answered(make_server):
  server, sink = make_server(layout(2, 2, 1), batch_size=4, timeout=DEADLINE)
  old = Client(server, CounterEnvironment([100, 100]), run_id=1)
  other = Client(server, CounterEnvironment([100, 100]), 'actor/1')
  old.step()
  step_together([other, old])
  old.send_step()
  new = Client(server, CounterEnvironment([100, 100]), run_id=2)
  new.send_step()
  while not server._held:
    assert not sink.unrolls
  other.action = other.step()
  other.send_step()
  new.action = new.receive()
  other.action = other.receive()
  for _ in range(4):
    step_together([new, other])
  mine = [u for u in sink.unrolls if u.environment_id[0] == 0]
  np.testing.assert_array_equal(mine[0].timestep.observation[0, :, 0], range(5))
  assert server.measure(1.0)['rows_dropped'] == 2 * 3


def test_while_replay_is_full_its_streams_wait_and_evaluators_are_served(make_server):
  server, sink = make_server(layout(1, 2, 1, eval_envs=2))
  client = fill_replay(server, sink)
  evaluator = Client(server, CounterEnvironment([3, 5]), 'evaluator/0')
  for _ in range(5):
    evaluator.step()
  client.connection.set_timeout(0.01)
  with pytest.raises(TimeoutError):
    client.receive()
  assert len(sink.unrolls) == 1 and server.actor_steps == 18
  client.connection.set_timeout(DEADLINE)
  sink.kept.pop()()
  assert client.receive() is not None
  np.testing.assert_array_equal(sink.unrolls[1].extras['count'][0], range(4, 9))


def test_who_waits_for_replay_is_told_when_training_has_finished(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = fill_replay(server, sink)
  server.finish_training()
  assert client.receive() is None


def test_strangers_are_disconnected_and_nobody_else_notices(make_server):
  server, _ = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([3, 5]))
  too_large = wire.pack(np.zeros(1 << 18))
  for message in (b'', b'hello', wire.pack(1, 2), wire.pack([], 1, 0, 0), too_large):
    stranger = Client(server, None)
    with pytest.raises(ConnectionError):
      stranger.connection.send(message)
      stranger.receive()
  halfway = server.connect()
  halfway._socket.send(b'\0\0\1')
  assert client.step() is not None
  halfway.close()
  assert client.step() is not None


def test_a_failure_is_raised_where_it_is_looked_for_and_ends_the_service(make_server):
  class Broken(Sink):
    def __call__(self, unroll, release):
      raise OSError('the sink is broken')

  server, _ = make_server(layout(1, 2, 1), sink=Broken())
  client = Client(server, CounterEnvironment([100, 100]))
  for _ in range(4):
    client.step()
  client.send_step()
  server._threads[0].join(DEADLINE)
  with pytest.raises(OSError, match='the sink is broken'):
    server.check()
  with pytest.raises(OSError, match='the sink is broken'):
    server.connect()


def test_who_waits_is_disconnected_when_the_server_is_closed(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = fill_replay(server, sink)
  server.close()
  with pytest.raises(ConnectionError):
    client.receive()
  with pytest.raises(lifecycle.Stopped):
    server.connect()


def test_many_streams_are_all_answered_and_every_row_is_kept(make_server):
  streams = layout(8, 2, 2)
  server, sink = make_server(streams, batch_size=4, timeout=0.001)

  def act(stream):
    client = Client(
      server, CounterEnvironment([3 + stream.group]), stream.actor_id, 1, stream.group
    )
    for _ in range(101):
      assert client.step() is not None

  threads = [threading.Thread(target=act, args=(stream,)) for stream in streams]
  [thread.start() for thread in threads]
  [thread.join(DEADLINE) for thread in threads]
  assert len(sink.unrolls) == 16 * 25
  for unroll in sink.unrolls:
    np.testing.assert_array_equal(unroll.extras['count'], unroll.timestep.observation[..., 0])


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
    step_together(clients)
    clients[0].step()
  assert device.compiled_shapes == compiled == 2


def test_bad_requests_are_refused_in_one_sentence(make_server):
  server, _ = make_server(layout(1, 2, 1))
  environment = CounterEnvironment([3, 5])
  good = environment.reset()
  with pytest.raises(ValueError, match="declared for 'actor/7'"):
    Client(server, environment, 'actor/7').ask(0, good)
  client = Client(server, environment)
  with pytest.raises(ValueError, match=r'sent observation as float32\[2, 3\]'):
    client.ask(0, good._replace(observation=np.zeros((2, 3), np.float32)))
  with pytest.raises(ValueError, match='reward that is not finite'):
    client.ask(0, good._replace(reward=np.array([0, np.nan], np.float32)))
  assert client.ask(0, good) is not None


def test_actors_are_told_to_stop_when_training_has_finished_and_evaluators_are_served(make_server):
  server, _ = make_server(layout(1, 2, 1, eval_envs=2))
  actor = Client(server, CounterEnvironment([3, 5]))
  actor.step()
  server.finish_training()
  assert actor.step() is None
  assert Client(server, CounterEnvironment([3, 5]), 'evaluator/0').step() is not None
