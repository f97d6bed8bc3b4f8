"""Prioritized replay, against a real Reverb server."""

import itertools
import threading

import jax
import numpy as np
import pytest

from agents.options import make
from nodes import replay
from nodes.unrolls import reader as reader_lib
from nodes.unrolls import tables
from nodes.unrolls.reader import UnrollReader
from nodes.unrolls.replay_client import ReplayClient
from nodes.unrolls.writer import UnrollWriter
from programs import estimates, r2d2
from tests.nodes.numbered import COLUMNS, numbered_unrolls
from tests.nodes.prioritized import prioritized, write
from tests.ports import unused_port
from tests.waiting import wait_until


def test_the_table_gives_as_many_samples_as_the_arithmetic_of_a_run_says(serve):
  """Of 40 unrolls, with a ratio of 2 that may be off by 7 samples, learning from the 10th on."""
  config = make(
    r2d2.Config,
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
  address = serve(prioritized(2.0, 7.0, min_size=10))
  writer = UnrollWriter([address], COLUMNS)
  writer.start()
  writer.put(numbered_unrolls(0, 40), lambda: None)  # It waits for samples now and then.
  batches = iter(UnrollReader([address], COLUMNS, 1, max_in_flight=1))
  run = estimates.expected(config)
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
def test_sampling_frequency_follows_priority_to_the_power(serve):
  address = serve(prioritized())
  priorities = np.array([0.01, 0.1, 0.5, 1.0, 2.0, 8.0, 30.0, 3.0])
  writer = write([address], len(priorities), priorities)
  reader = UnrollReader([address], COLUMNS, batch_size=1000, max_in_flight=1000)
  counts = np.zeros(len(priorities))
  expected = priorities**0.9 / np.sum(priorities**0.9)
  for batch in itertools.islice(reader, 100):
    items = batch.unrolls.environment_id
    np.testing.assert_allclose(batch.probabilities, expected[items], rtol=1e-5)
    counts += np.bincount(items, minlength=len(priorities))
  chi_square = np.sum((counts - 1e5 * expected) ** 2 / (1e5 * expected))
  assert chi_square < 50  # Of 7 degrees of freedom: by chance once in 70 million.
  uniform = np.full(8, 1 / 8)
  assert np.sum((counts - 1e5 * uniform) ** 2 / (1e5 * uniform)) > 1e4
  writer.close()


def test_updated_priorities_reach_the_server_that_holds_the_item(serve):
  addresses = [serve(prioritized(), name) for name in ('a', 'b')]
  writer = write(addresses, 8, np.ones(8))
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


def test_priorities_that_cannot_be_sent_are_an_error_of_the_next_update(monkeypatch):
  def fail(client, table, priorities):
    raise ValueError('not these')

  monkeypatch.setattr(reader_lib, '_mutate', fail)
  port = unused_port()  # No server is asked.
  reader = UnrollReader([f'localhost:{port}'], COLUMNS, batch_size=2, max_in_flight=1)
  keys, priorities = np.array([1, 2], np.uint64), np.ones(2)
  assert reader.update_priorities(keys, priorities)
  with pytest.raises(RuntimeError, match='replay no longer takes priorities') as error:
    wait_until(lambda: reader.update_priorities(keys, priorities) is None)  # Until it raises.
  assert str(error.value.__cause__) == 'not these'


def test_the_ratio_of_samples_to_inserts_is_held(serve):
  address = serve(prioritized(samples_per_insert=3.0, min_size=10, error_buffer=12.0))
  writer = UnrollWriter([address], COLUMNS, lambda unrolls: np.ones(4))
  writer.start()
  for first in range(0, 400, 4):
    writer.put(numbered_unrolls(first, 4), lambda: None)
  reader = UnrollReader([address], COLUMNS, batch_size=5, max_in_flight=5)
  client = ReplayClient(address)
  for _ in itertools.islice(reader, 200):
    info = client.server_info()[tables.UNROLLS].rate_limiter_info
    inserts, samples = info.insert_stats.completed, info.sample_stats.completed
    # Counts are read one after the other, so allow what may happen in between.
    assert (inserts - 10) * 3.0 - samples + 12.0 >= -10
    assert (inserts - 10) * 3.0 - samples - 12.0 <= 3.0 + 10
  assert 2.5 < reader.measure()['samples_per_insert'] < 3.1
  writer.close()


def test_a_checkpoint_brings_items_and_priorities_back(serve, tmp_path):
  port = unused_port()
  server = replay.ReplayServer(prioritized(), None, 'replay/0', str(tmp_path / 'kept'), 0.0, port)
  writer = write([f'localhost:{port}'], 6, np.arange(1.0, 7.0))
  server.write_checkpoint()
  writer.close()
  server.close()
  restored = serve(prioritized(), 'kept')
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
  address = serve(prioritized())
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
