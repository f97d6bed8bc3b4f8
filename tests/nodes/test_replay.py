"""Replay, against a real Reverb server."""

import contextlib
import functools
import itertools
import secrets
import socket
import struct
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

from launchers import binding
from nodes import replay
from nodes.runtime import lifecycle
from nodes.unrolls import tables
from nodes.unrolls.packing import Columns
from nodes.unrolls.reader import UnrollReader
from nodes.unrolls.thin_reverb import reverb
from nodes.unrolls.writer import UnrollWriter
from programs import arithmetic, r2d2
from tests.nodes import nested
from tests.nodes.numbered import COLUMNS, EXAMPLE, numbered_unrolls
from tests.nodes.replay_size import replay_size
from tests.waiting import wait_until

DEADLINE = 60


def _prioritized(samples_per_insert=1e6, error_buffer=1e9, max_size=1000, min_size=1):
  return functools.partial(
    tables.prioritized_table,
    max_size=max_size,
    min_size=min_size,
    samples_per_insert=samples_per_insert,
    error_buffer=error_buffer,
    priority_exponent=0.9,
  )


def _write(addresses, count, priorities):
  """Writes unrolls 0..count and waits until replay has them."""
  written = threading.Event()
  writer = UnrollWriter(addresses, COLUMNS, lambda unrolls: priorities)
  writer.start()
  writer.put(numbered_unrolls(0, count), written.set)
  assert written.wait(30)
  wait_until(lambda: sum(map(replay_size, addresses)) == count, writer.check)
  return writer


def test_nests_come_back_from_replay_as_they_were_written(queue_address):
  written = nested.nested_unrolls(0, 4)
  writer = UnrollWriter([queue_address], nested.COLUMNS)
  writer.start()
  writer.put(written, lambda: None)
  batch = next(iter(UnrollReader([queue_address], nested.COLUMNS, 4, max_in_flight=1)))
  writer.close()
  jax.tree.map(np.testing.assert_array_equal, batch.unrolls, written)
  same = jax.tree.map(lambda a, b: a.dtype == b.dtype, batch.unrolls, written)
  assert jax.tree.all(same) and 'timestep/observation/goal/1' in nested.COLUMNS.names


@pytest.fixture
def dying():
  """The address of a server that dies in the middle of each call, and an event for the first death."""
  died = threading.Event()
  with socket.create_server(('127.0.0.1', 0)) as listener:

    def serve():
      with contextlib.suppress(OSError):  # Closed.
        while True:
          connection, _ = listener.accept()
          with connection:
            connection.sendall(
              bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
            )  # HTTP/2 settings, so that it asks.
            while connection.recv(4096).find(b'/deepmind.reverb') < 0:
              pass
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
          died.set()

    threading.Thread(target=serve, daemon=True).start()
    yield f'127.0.0.1:{listener.getsockname()[1]}', died
    listener.shutdown(socket.SHUT_RDWR)


def test_a_server_that_dies_in_the_middle_of_a_call_is_away_and_asked_again(dying):
  address, died = dying
  reader = UnrollReader([address], COLUMNS, batch_size=2, max_in_flight=1)
  assert np.isnan(reader.measure()['replay_size'])
  assert 'does not answer' in reader.explain_wait()
  died.clear()
  keys, priorities = np.array([1, 2], np.uint64), np.ones(2)
  for _ in range(2):
    assert reader.update_priorities(keys, priorities)
    assert died.wait(60)


def test_the_table_gives_as_many_samples_as_the_arithmetic_of_a_run_says(serve):
  """Of 40 unrolls, with a ratio of 2 that may be off by 7 samples, learning from the 10th on."""
  config = r2d2.Config(
    num_actors=1,
    envs_per_actor=1,
    burn_in=0,
    unroll_length=5,
    num_steps=40 * 5 + 1,
    batch_size=1,
    min_replay_size=10,
    samples_per_insert=2.0,
    samples_per_insert_error=7.0,
  ).resolve()
  address = serve(_prioritized(2.0, 7.0, min_size=10))
  writer = UnrollWriter([address], COLUMNS)
  writer.start()
  writer.put(numbered_unrolls(0, 40), lambda: None)  # It waits for samples now and then.
  batches = iter(UnrollReader([address], COLUMNS, 1, max_in_flight=1))
  run = arithmetic.expected(config)
  assert run.updates == 2 * (40 - 10)
  assert run.most_updates == 2 * (40 - 10) + 7
  for _ in range(run.most_updates):
    next(batches)
  one_more = threading.Thread(target=next, args=(batches, None), daemon=True)
  one_more.start()
  one_more.join(0.5)
  assert one_more.is_alive()
  writer.close()


@pytest.mark.slow
@pytest.mark.parametrize('unrolls_per_item', [1, 2])
def test_the_queue_delivers_every_unroll_once_in_order_and_whole(queue_address, unrolls_per_item):
  columns = Columns(EXAMPLE, unrolls_per_item)
  writer = UnrollWriter([queue_address], columns)
  writer.start()
  released = []
  for first in range(0, 40, 10):
    writer.put(numbered_unrolls(first, 10), functools.partial(released.append, first))
  batches = iter(UnrollReader([queue_address], columns, 4, max_in_flight=2))
  ids = []
  for i, batch in enumerate(itertools.islice(batches, 10)):
    jax.tree.map(np.testing.assert_array_equal, batch.unrolls, numbered_unrolls(4 * i, 4))
    assert batch.unroll_ids.shape == batch.probabilities.shape == (4,)
    ids += batch.unroll_ids.tolist()
  assert released == list(range(0, 40, 10))
  assert ids == list(range(ids[0], ids[0] + 40))
  writer.check()
  writer.close()


@pytest.mark.slow
def test_several_servers_give_equal_parts_of_items_of_several_unrolls(serve):
  addresses = [serve(functools.partial(tables.queue_table, 4), name) for name in ('a', 'b')]
  columns = Columns(EXAMPLE, unrolls_per_item=2)
  writer = UnrollWriter(addresses, columns)
  writer.start()
  writer.put(numbered_unrolls(0, 16), lambda: None)
  reader = UnrollReader(addresses, columns, batch_size=8, max_in_flight=4)
  seen = [batch.unrolls.environment_id.tolist() for batch in itertools.islice(reader, 2)]
  assert seen == [[0, 1, 4, 5, 2, 3, 6, 7], [8, 9, 12, 13, 10, 11, 14, 15]]
  writer.close()
  with pytest.raises(ValueError, match='6 unrolls is no whole number of items of 2 from each of 2'):
    UnrollReader(addresses, columns, batch_size=6, max_in_flight=4)


def test_items_of_several_unrolls_have_no_priorities(queue_address):
  writer = UnrollWriter([queue_address], Columns(EXAMPLE, 2), lambda unrolls: np.ones(4))
  writer.start()
  writer.put(numbered_unrolls(0, 4), lambda: None)
  with pytest.raises(ValueError, match='items of 2 unrolls have no priorities'):
    wait_until(lambda: False, writer.check)
  writer.close()


@pytest.mark.slow
def test_an_unroll_that_its_writer_sent_twice_is_given_once(queue_address, monkeypatch):
  """As after the death of a server that had not confirmed what it had given already."""
  monkeypatch.setattr(secrets, 'randbits', lambda bits: 5)
  writers = [UnrollWriter([queue_address], COLUMNS) for _ in range(2)]
  batches = iter(UnrollReader([queue_address], COLUMNS, 4, max_in_flight=2))
  seen = []
  for writer, count in zip(writers, (6, 14), strict=True):  # The same ids from 5 << 32.
    writer.start()
    released = threading.Event()
    writer.put(numbered_unrolls(0, count), released.set)
    assert released.wait(30)
    if not seen:
      seen += [next(batches) for _ in range(1)]
  seen += [next(batches) for _ in range(2)]
  for writer in writers:
    writer.close()
  numbers = [n for batch in seen for n in batch.unrolls.environment_id.tolist()]
  assert numbers == list(range(12))
  assert [i for batch in seen for i in batch.unroll_ids.tolist()] == [
    (5 << 32) + n for n in numbers
  ]


def test_an_occupied_port_is_refused(tmp_path):
  with socket.socket(socket.AF_INET6) as other:
    other.bind(('', 0))
    other.listen()
    with pytest.raises(OSError, match='in use'):
      port = other.getsockname()[1]
      replay.ReplayServer(_prioritized(), None, 'replay/0', str(tmp_path), 0.0, port)


def test_sampling_frequency_follows_priority_to_the_power(serve):
  address = serve(_prioritized())
  priorities = np.array([0.01, 0.1, 0.5, 1.0, 2.0, 8.0, 30.0, 3.0])
  writer = _write([address], len(priorities), priorities)
  reader = UnrollReader([address], COLUMNS, batch_size=1000, max_in_flight=1000)
  counts = np.zeros(len(priorities))
  expected = priorities**0.9 / np.sum(priorities**0.9)
  for batch in itertools.islice(reader, 100):
    items = batch.unrolls.environment_id
    np.testing.assert_allclose(batch.probabilities, expected[items], rtol=1e-5)
    counts += np.bincount(items, minlength=len(priorities))
  chi_square = np.sum((counts - 1e5 * expected) ** 2 / (1e5 * expected))
  assert chi_square < 24.3  # The 0.1% point for 7 degrees of freedom.
  uniform = np.full(8, 1 / 8)
  assert np.sum((counts - 1e5 * uniform) ** 2 / (1e5 * uniform)) > 1e4
  writer.close()


def test_updated_priorities_reach_the_server_that_holds_the_item(serve):
  addresses = [serve(_prioritized(), name) for name in ('a', 'b')]
  writer = _write(addresses, 8, np.ones(8))
  reader = UnrollReader(addresses, COLUMNS, batch_size=16, max_in_flight=2)
  batches = iter(reader)
  keys = {}
  for batch in itertools.islice(batches, 100):
    halves = batch.unrolls.environment_id.reshape(2, 8)
    assert set(halves[0] % 2) == {0} and set(halves[1] % 2) == {1}, 'shards are not sampled evenly'
    keys |= dict(zip(batch.unrolls.environment_id.tolist(), batch.keys.tolist(), strict=True))
    if len(keys) == 8:
      break
  # Rows 0..7 of an update go to the first server and 8..15 to the second, as in a batch.
  order = [0, 2, 4, 6] * 2 + [1, 3, 5, 7] * 2
  update = np.array([keys[i] for i in order], np.uint64)
  # Unknown keys, as of items that have left, are passed over.
  assert reader.update_priorities(np.arange(16, dtype=np.uint64), np.ones(16))
  priorities = np.array([1e6 if i in (2, 5) else 1e-6 for i in order])
  for _ in range(5):
    wait_until(lambda: reader.update_priorities(update, priorities))
  wait_until(lambda: set(next(batches).unrolls.environment_id) == {2, 5})
  list(itertools.islice(batches, 10))  # What was in flight.
  assert set(next(batches).unrolls.environment_id) == {2, 5}
  writer.close()


def test_the_ratio_of_samples_to_inserts_is_held(serve):
  address = serve(_prioritized(samples_per_insert=3.0, min_size=10, error_buffer=12.0))
  writer = UnrollWriter([address], COLUMNS, lambda unrolls: np.ones(4))
  writer.start()
  for first in range(0, 400, 4):
    writer.put(numbered_unrolls(first, 4), lambda: None)
  reader = UnrollReader([address], COLUMNS, batch_size=5, max_in_flight=5)
  client = reverb.Client(address)
  for _ in itertools.islice(reader, 200):
    info = client.server_info()[tables.UNROLLS].rate_limiter_info
    inserts, samples = info.insert_stats.completed, info.sample_stats.completed
    # Counts are read one after the other, so allow what may happen in between.
    assert (inserts - 10) * 3.0 - samples + 12.0 >= -10
    assert (inserts - 10) * 3.0 - samples - 12.0 <= 3.0 + 10
  assert 2.5 < reader.measure()['samples_per_insert'] < 3.1
  writer.close()


def test_a_checkpoint_brings_items_and_priorities_back(serve, tmp_path):
  port = binding.free_ports(1)[0]
  server = replay.ReplayServer(_prioritized(), None, 'replay/0', str(tmp_path / 'kept'), 0.0, port)
  writer = _write([f'localhost:{port}'], 6, np.arange(1.0, 7.0))
  server.write_checkpoint()
  writer.close()
  server.close()
  restored = serve(_prioritized(), 'kept')
  reader = UnrollReader([restored], COLUMNS, batch_size=50, max_in_flight=1)
  assert reader.measure()['replay_size'] == 6
  expected = np.arange(1.0, 7.0) ** 0.9 / np.sum(np.arange(1.0, 7.0) ** 0.9)
  batch = next(iter(reader))
  np.testing.assert_allclose(batch.probabilities, expected[batch.unrolls.environment_id], rtol=1e-5)
  first = jax.tree.map(lambda x: x[:1], batch.unrolls)
  jax.tree.map(
    np.testing.assert_array_equal, first, numbered_unrolls(int(first.environment_id[0]), 1)
  )


def test_new_unrolls_enter_with_the_priority_that_the_agent_gives_them(serve):
  address = serve(_prioritized())
  asked = []

  def priorities(unrolls):
    asked.append(unrolls.environment_id.tolist())
    return 1.0 + unrolls.environment_id

  writer = UnrollWriter([address], COLUMNS, priorities)
  writer.start()
  for first in (0, 3):
    writer.put(numbered_unrolls(first, 3), lambda: None)
  reader = UnrollReader([address], COLUMNS, batch_size=1, max_in_flight=1)
  wait_until(lambda: reader.measure()['replay_size'] == 6, writer.check)
  assert asked == [[0, 1, 2], [3, 4, 5]]
  total = np.sum(np.arange(1.0, 7.0) ** 0.9)
  batch = list(itertools.islice(reader, 30))[-1]
  expected = (1.0 + batch.unrolls.environment_id[0]) ** 0.9 / total
  np.testing.assert_allclose(batch.probabilities[0], expected, rtol=1e-5)
  writer.close()


_SERVER = """
import functools, sys
from nodes import replay
from nodes.unrolls import tables
table = {
  'queue': functools.partial(tables.queue_table, 4),
  'prioritized': functools.partial(tables.prioritized_table, 1000, 1, 1e6, 1e9, 0.9),
}[sys.argv[1]]
server = replay.ReplayServer(table, None, 'replay/0', sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
print('up', flush=True)
server.run()
"""


@pytest.fixture
def serve_in_process(tmp_path):
  """Starts a replay server in a process of its own, at the same address each time."""
  port = binding.free_ports(1)[0]
  servers = []

  def start(kind, checkpoint_period):
    arguments = [kind, str(tmp_path / 'replay'), str(checkpoint_period), str(port)]
    server = subprocess.Popen(
      [sys.executable, '-c', _SERVER, *arguments], stdout=subprocess.PIPE, text=True
    )
    servers.append(server)
    assert server.stdout.readline() == 'up\n'
    return server, f'localhost:{port}'

  yield start
  for server in servers:
    server.kill()


@pytest.mark.slow
def test_a_queue_that_is_killed_loses_what_it_held_and_doubles_nothing(serve_in_process):
  server, address = serve_in_process('queue', 0)
  produced = []
  writer = UnrollWriter([address], COLUMNS, produced=produced.extend)
  writer.start()
  reader = UnrollReader([address], COLUMNS, batch_size=2, max_in_flight=2)
  stop = threading.Event()

  def feed():
    for number in itertools.count():
      released = threading.Event()
      writer.put(numbered_unrolls(number % 100, 1), released.set)
      while not released.wait(0.1):
        if stop.is_set():
          return

  threading.Thread(target=feed, daemon=True).start()
  batches = iter(reader)
  trained = [i for _ in range(10) for i in next(batches).unroll_ids]
  server.kill()
  server.wait()
  assert np.isnan(reader.measure()['replay_size'])
  assert 'does not answer' in reader.explain_wait()
  serve_in_process('queue', 0)
  before = len(trained)
  trained += [i for _ in range(10) for i in next(batches).unroll_ids]
  stop.set()
  writer.check()
  writer.close()
  assert len(set(trained)) == len(trained), 'an unroll was delivered twice'
  assert set(trained) <= set(produced)
  # The queue's four, the reader's two batches, and what was on its way.
  lost = produced.index(trained[before]) - produced.index(trained[before - 1]) - 1
  assert lost <= 4 + 2 * 2 + 2


@pytest.mark.slow
def test_a_killed_server_comes_back_with_the_items_of_its_last_checkpoint(
  serve_in_process, tmp_path
):
  server, address = serve_in_process('prioritized', 0.5)
  _write([address], 6, np.arange(1.0, 7.0)).close()
  done = set()

  def written():
    done.update((tmp_path / 'replay').glob('*/DONE'))
    return len(done)

  wait_until(lambda: written() >= 2)  # The second began after the writing had ended.
  server.kill()
  server.wait()
  serve_in_process('prioritized', 0)
  reader = UnrollReader([address], COLUMNS, batch_size=500, max_in_flight=500)
  assert reader.measure()['replay_size'] == 6
  assert set(next(iter(reader)).unrolls.environment_id) == set(range(6))


class _Monitor:
  """Answers whether training has finished, and counts how often it was asked."""

  def __init__(self, training_finished):
    self.asked, self._training_finished = 0, training_finished

  def finished(self):
    self.asked += 1
    return self._training_finished


def test_a_server_that_is_stopped_before_the_end_writes_a_checkpoint(
  tmp_path, connect, monkeypatch
):
  stop = threading.Event()
  monkeypatch.setattr(lifecycle, 'stop_event', lambda: stop)
  running = []
  for finished in (False, True):
    monitor, directory = _Monitor(finished), tmp_path / str(finished)
    server = replay.ReplayServer(
      _prioritized(),
      connect(monitor),
      'replay/0',
      str(directory),
      1e9,
      binding.free_ports(1)[0],
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    running.append((finished, monitor, directory, thread))
  # The second question is asked once the first is answered.
  wait_until(lambda: all(monitor.asked >= 2 for _, monitor, _, _ in running))
  stop.set()
  for finished, _, directory, thread in running:
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert bool(list(directory.glob('*/DONE'))) is not finished
