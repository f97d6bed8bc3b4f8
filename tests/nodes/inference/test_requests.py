"""An inference server: requests of former incarnations, repeated, of strangers, and deferred ones."""

import os
import threading

import msgpack
import numpy as np
import pytest

from nodes.inference import codec, shared_memory
from nodes.inference.client import RemotePolicy
from nodes.inference.layout import layout
from nodes.runtime import lifecycle, watchdog
from tests.nodes.counter import CounterEnvironment
from tests.nodes.inference_clients import DEADLINE, Client, Sink, fill_replay, step_together
from tests.waiting import wait_until


@pytest.fixture(autouse=True, params=[1, 1 << 12], ids=['memory', 'socket'])
def smallest_shared(request, monkeypatch):
  """Arrays of this many bytes or more are in shared memory; those of these tests have 2 or 8."""
  monkeypatch.setattr(shared_memory, '_SMALLEST', request.param)


def test_a_restarted_actor_resets_its_own_slots_only(make_server):
  server, sink = make_server(layout(2, 2, 1))
  old = Client(server, CounterEnvironment([100, 100]), 'actor/0', incarnation=5)
  other = Client(server, CounterEnvironment([100, 100]), 'actor/1', incarnation=9)
  for _ in range(7):
    old.step()
    other.step()
  # The new one begins in the middle of an episode, as after a lost connection: nothing but the new
  # incarnation tells the server to forget.
  new = Client(server, CounterEnvironment([100, 100]), 'actor/0', incarnation=2)
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
  for _ in range(2):
    with pytest.raises(ValueError, match='another process acts as actor/0 now'):
      old.ask(7, old.environment.step(None))
  assert new.step() is not None
  server.finish_training()
  assert old.ask(7, old.environment.step(None)) is None, 'it may leave like any other'


class _Meanwhile(Sink):
  """Calls a function in the thread that serves, which reads no request until it returns."""

  happens = staticmethod(lambda: None)

  def put(self, unroll, release):
    super().put(unroll, release)
    self.happens()


def test_a_late_request_of_an_earlier_incarnation_or_step_changes_nothing(make_server):
  server, sink = make_server(layout(1, 2, 1), sink=_Meanwhile())
  client = Client(server, CounterEnvironment([100, 100]), incarnation=5)

  def an_unknown_incarnation_asks_and_dies():
    dead = Client(server, CounterEnvironment([3, 3]), incarnation=4)
    dead.send_step()
    dead.connection.close()

  sink.happens = an_unknown_incarnation_asks_and_dies
  for _ in range(14):
    first = client.timestep
    client.step()
    if first is not None:
      client.ask(client.sequence - 1, first)
  assert server.measure(1.0)['restarts'] == 0
  assert len(sink.unrolls) == 3
  for number, unroll in enumerate(sink.unrolls):
    np.testing.assert_array_equal(unroll.extras['count'][0], 4 * number + np.arange(5))
  assert server.actor_steps == 28


def test_of_two_incarnations_that_wait_the_later_one_is_served(make_server):
  server, _ = make_server(layout(2, 2, 1), batch_size=4, timeout=DEADLINE)
  first, other, second, third = (
    Client(server, CounterEnvironment([100, 100]), f'actor/{i}', incarnation=n)
    for i, n in ((0, 7), (1, 1), (0, 3), (0, 5))
  )
  first.step()
  step_together([other, first])
  first.send_step()  # It is served with the other, which does not ask yet.
  second.send_step()
  wait_until(lambda: server.deferred_requests)
  third.send_step()
  with pytest.raises(ValueError, match='another process acts'):
    second.receive()
  other.step()
  first.receive()
  other.send_step()
  assert third.receive() is not None and other.receive() is not None
  with pytest.raises(ValueError, match='another process acts'):
    first.ask(9, first.timestep)


def test_requests_of_another_run_are_disconnected(make_server):
  server, _ = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([100, 100]))
  client.step()
  stranger = Client(server, CounterEnvironment([100, 100]), incarnation=2)
  stranger.identity = 'another run', *stranger.identity[1:]
  with pytest.raises(ConnectionError):
    stranger.step()
  assert client.step() is not None
  assert server.measure(1.0)['restarts'] == 0


def test_the_reply_goes_to_the_latest_connection(make_server):
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


@pytest.mark.parametrize('waits', ['served', 'deferred'])
def test_a_copy_that_arrives_after_its_connection_was_given_up_takes_no_reply(make_server, waits):
  server, sink = make_server(layout(2, 2, 1), batch_size=4, timeout=DEADLINE)
  first = Client(server, CounterEnvironment([100, 100]))
  first.step()  # Alone so far.
  if waits == 'served':
    other = Client(server, CounterEnvironment([100, 100]), 'actor/1')
    step_together([other, first])
    first.send_step()  # It waits for the other, whose request would fill the batch.
  else:
    sink.free = False
    for _ in range(8):
      first.step()
    first.send_step()
    wait_until(lambda: server.deferred_requests)
  late = Client(server, first.environment)
  env_group = server._scheduler._env_groups[0]
  with env_group.lock:  # The copy is considered once its connection is closed.
    late.send(first.sequence, first.timestep)
    late.connection.close()
  stranger = Client(server, CounterEnvironment([100, 100]), incarnation=2)
  stranger.identity = 'another run', *stranger.identity[1:]
  with pytest.raises(ConnectionError):  # By then the copy has been read.
    stranger.step()
  if waits == 'served':
    other.send_step()
  else:
    sink.kept.pop()()
  assert first.receive() is not None


def test_a_new_incarnation_waits_for_the_reply_to_the_previous_one(make_server):
  server, sink = make_server(layout(2, 2, 1), batch_size=4, timeout=DEADLINE)
  old = Client(server, CounterEnvironment([100, 100]), incarnation=1)
  other = Client(server, CounterEnvironment([100, 100]), 'actor/1')
  old.step()
  step_together([other, old])
  old.send_step()
  new = Client(server, CounterEnvironment([100, 100]), incarnation=2)
  new.send_step()
  wait_until(lambda: server.deferred_requests)
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


def test_while_replay_is_full_its_groups_wait_and_evaluators_are_served(make_server):
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


def test_actors_that_wait_for_replay_learn_that_training_has_finished(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = fill_replay(server, sink)
  server.finish_training()
  assert client.receive() is None


def test_invalid_connections_are_closed_without_effect_on_others(make_server):
  server, _ = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([3, 5]))
  too_large = codec.pack(np.zeros(1 << 18))
  elsewhere = msgpack.packb(['', 'actor/0', 7, 0, 0, *[('|u1', [2], 1 << 40)] * 4])
  for message in (
    b'',
    b'hello',
    codec.pack(1, 2),
    msgpack.packb([[], 1, 0, 0]),
    too_large,
    elsewhere,
  ):
    stranger = Client(server, None)
    with pytest.raises(ConnectionError):
      stranger.connection.send(message)
      stranger.receive()
  halfway = server.connect()
  os.write(halfway.fileno(), b'\0\0\1')
  assert client.step() is not None
  halfway.close()
  assert client.step() is not None


def test_a_failure_is_raised_by_check_and_ends_the_service(make_server):
  class Broken(Sink):
    def put(self, unroll, release):
      raise OSError('the sink is broken')

  server, _ = make_server(layout(1, 2, 1), sink=Broken())
  client = Client(server, CounterEnvironment([100, 100]))
  for _ in range(4):
    client.step()
  client.send_step()
  with pytest.raises(OSError, match='the sink is broken'):
    wait_until(lambda: False, server.check)
  policy = RemotePolicy(server, 'actor/0', 9, 0, lambda: False)
  with pytest.raises(RuntimeError, match='the sink is broken'):  # A client does not retry.
    policy.send(CounterEnvironment([100, 100]).reset())


def test_a_thread_that_hangs_within_a_batch_is_noticed_where_failures_are(make_server, monkeypatch):
  class Hanging(Sink):
    def put(self, unroll, release):
      resumed.wait(DEADLINE)

  resumed = threading.Event()
  server, _ = make_server(layout(1, 2, 1), sink=Hanging())
  client = Client(server, CounterEnvironment([100, 100]))
  for _ in range(4):
    client.step()
  monkeypatch.setattr(watchdog, 'LIMIT_SECONDS', 0.0)
  client.send_step()
  with pytest.raises(TimeoutError, match='a batch of inference has taken longer'):
    wait_until(lambda: False, server.check)
  resumed.set()


def test_waiting_clients_are_disconnected_when_the_server_closes(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = fill_replay(server, sink)
  server.close()
  with pytest.raises(ConnectionError):
    client.receive()
  with pytest.raises(lifecycle.Stopped):
    server.connect()


def test_a_retried_request_gets_the_same_reply_and_changes_nothing(make_server):
  server, sink = make_server(layout(1, 2, 1))
  client = Client(server, CounterEnvironment([100, 100]))
  for _ in range(12):
    action = client.step()
    np.testing.assert_array_equal(client.ask(client.sequence, client.timestep), action)
  assert len(sink.unrolls) == 2
  for unroll in sink.unrolls:
    np.testing.assert_array_equal(unroll.extras['count'], unroll.timestep.observation[..., 0])
  assert server.actor_steps == 24


def test_bad_requests_are_rejected_in_one_sentence(make_server):
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
  for name, value in (
    ('step_type', 3),
    ('discount', 1.5),
    ('discount', -0.1),
    ('discount', np.nan),
  ):
    values = np.array([1, value], getattr(good, name).dtype)
    with pytest.raises(ValueError, match=f'returned a {name} that is'):
      client.ask(0, good._replace(**{name: values}))
  shares = good._replace(discount=np.array([0.97, -0.0], np.float32))
  for games in (np.zeros(3, bool), np.zeros(2, np.uint8)):
    with pytest.raises(ValueError, match=r'actor/0 sent a game_over that is not bool\[2\]'):
      client.ask(0, (*good, games))
  assert client.ask(0, shares) is not None


def test_returns_are_of_games_where_the_actor_says_so(make_server):
  """An episode is 3 steps and pays 1 for each, the second environment's; a game is two of them."""
  server, _ = make_server(layout(1, 2, 1))
  environment = CounterEnvironment([3, 3])
  client = Client(server, environment)
  row = environment.reset()
  for t in range(17):  # FIRST rows are those at 0, 4, 8, 12 and 16.
    assert client.ask(t, (*row, np.full(2, t % 8 == 7))) is not None
    row = environment.step(np.zeros(2, np.int32))
  measured = server.measure(1.0)
  assert (measured['episodes'], measured['episode_return']) == (4, 3.0)
  assert measured['episode_length'] == 6


def test_a_game_that_began_before_the_server_has_no_return(make_server):
  """The actor goes on, as after a restart of the server: its requests are not the first."""
  server, _ = make_server(layout(1, 2, 1))
  environment = CounterEnvironment([3, 5])
  client = Client(server, environment)
  environment.reset()
  row = environment.step(np.zeros(2, np.int32))
  for t in range(1, 12):  # LAST rows are those at 3, 7, 11, and at 5, 11.
    assert client.ask(t, row) is not None
    row = environment.step(np.zeros(2, np.int32))
  measured = server.measure(1.0)
  assert measured['episodes'] == 3
  assert measured['episode_length'] == (3 + 3 + 5) / 3


def test_actors_are_told_to_stop_when_training_has_finished_and_evaluators_are_served(make_server):
  server, _ = make_server(layout(1, 2, 1, eval_envs=2))
  actor = Client(server, CounterEnvironment([3, 5]))
  actor.step()
  server.finish_training()
  assert actor.step() is None
  assert Client(server, CounterEnvironment([3, 5]), 'evaluator/0').step() is not None
