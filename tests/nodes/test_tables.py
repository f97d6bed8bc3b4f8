"""Several tables on one replay server, against a real one."""

import itertools
import threading

import jax
import numpy as np
import pytest

from nodes import replay
from nodes.unrolls import tables
from nodes.unrolls.mixed_reader import MixedReader, make_reader
from nodes.unrolls.reader import UnrollReader
from nodes.unrolls.replay_client import ReplayClient
from nodes.unrolls.table_names import ORIGINALS, RELABELLED, UNROLLS, BatchPart
from nodes.unrolls.writer import UnrollWriter
from tests.nodes.counter import CounterEnvironment, RelabellingAgent
from tests.nodes.numbered import COLUMNS, numbered_unrolls
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until


def several(relabelled_size=8, relabelled_min=2):
  return tables.all_tables(
    tables.prioritized_table(1000, 1, 1e6, 1e9, 0.9),
    tables.uniform_table(1000, 3),
    tables.relabelled_table(relabelled_size, relabelled_min, 0.9),
  )


def sizes(address):
  return {name: info.current_size for name, info in ReplayClient(address).server_info().items()}


def counts(address, table):
  info = ReplayClient(address).server_info()[table].rate_limiter_info
  return info.insert_stats.completed, info.sample_stats.completed


def write(addresses, first, count, names, priorities=None):
  """Writes numbered unrolls and waits until each table of each server has its part."""
  writer = UnrollWriter(addresses, COLUMNS, lambda unrolls: priorities, tables=names)
  writer.start()
  writer.put(numbered_unrolls(first, count), lambda: None)
  for name in names:
    wait_until(lambda n=name: sum(sizes(a)[n] for a in addresses) == count, writer.check)
  writer.close()


def reader(address, table, batch_size):
  return UnrollReader([address], COLUMNS, batch_size, max_in_flight=1, table=table)


def numbers(batch):
  return batch.unrolls.environment_id.tolist()


def test_a_writer_fills_the_tables_that_it_names_and_samples_of_one_do_not_count_in_another(serve):
  address = serve(several())
  write([address], 0, 6, (UNROLLS, ORIGINALS))
  assert sizes(address) == {UNROLLS: 6, ORIGINALS: 6, RELABELLED: 0}
  originals = reader(address, ORIGINALS, 150)
  batch = next(iter(originals))
  assert set(numbers(batch)) == set(range(6))
  np.testing.assert_allclose(batch.probabilities, 1 / 6, rtol=1e-6)
  first = jax.tree.map(lambda x: x[:1], batch.unrolls)
  jax.tree.map(np.testing.assert_array_equal, first, numbered_unrolls(numbers(batch)[0], 1))
  inserted, sampled = counts(address, ORIGINALS)
  assert inserted == 6 and sampled >= 150
  assert counts(address, UNROLLS) == (6, 0)
  measured = originals.measure()
  assert (measured['originals_replay_size'], measured['originals_unrolls_inserted']) == (6, 6)
  assert reader(address, UNROLLS, 1).measure()['unrolls_sampled'] == 0


def test_a_batch_has_the_shares_of_its_tables_and_the_probabilities_of_both_together(serve):
  address = serve(several(relabelled_size=100))
  write([address], 0, 6, (UNROLLS,), np.arange(1.0, 7.0))
  write([address], 100, 2, (RELABELLED,), np.array([1.0, 3.0]))
  mixed = MixedReader([reader(address, UNROLLS, 30), reader(address, RELABELLED, 10)])
  in_unrolls = np.arange(1.0, 7.0) ** 0.9 / np.sum(np.arange(1.0, 7.0) ** 0.9)
  in_relabelled = np.array([1.0, 3.0]) ** 0.9 / np.sum(np.array([1.0, 3.0]) ** 0.9)
  for batch in itertools.islice(mixed, 3):
    found = batch.unrolls.environment_id
    assert np.all(found[:30] < 6) and np.all(found[30:] >= 100)
    assert batch.unroll_ids.shape == batch.keys.shape == batch.probabilities.shape == (40,)
    assert batch.unrolls.action.shape == (40, 3) and batch.probabilities.dtype == np.float32
    np.testing.assert_allclose(batch.probabilities[:30], in_unrolls[found[:30]] * 6 / 8, rtol=1e-5)
    relabelled = in_relabelled[found[30:] - 100] * 2 / 8
    np.testing.assert_allclose(batch.probabilities[30:], relabelled, rtol=1e-5)
  measured = mixed.measure()
  assert (measured['replay_size'], measured['relabelled_replay_size']) == (6, 2)
  assert measured['samples_per_insert'] > 0 and measured['relabelled_samples_per_insert'] > 0


def test_new_priorities_reach_the_table_of_their_row(serve):
  address = serve(several())
  write([address], 0, 4, (UNROLLS,))
  write([address], 100, 4, (RELABELLED,))
  mixed = MixedReader([reader(address, UNROLLS, 8), reader(address, RELABELLED, 4)])
  batches = iter(mixed)

  def wanted_are_left():
    batch = next(batches)
    new = np.where(np.isin(batch.unrolls.environment_id, (2, 103)), 1e12, 1e-12)
    wait_until(lambda: mixed.update_priorities(batch.keys, new))
    return set(numbers(batch)) == {2, 103}

  wait_until(wanted_are_left)
  list(itertools.islice(batches, 10))  # What was in flight.
  assert all(wanted_are_left() for _ in range(10))


def test_a_reader_names_the_table_and_the_node_it_waits_for(serve):
  address = serve(several())
  write([address], 0, 4, (UNROLLS,))
  mixed = MixedReader([reader(address, UNROLLS, 2), reader(address, RELABELLED, 2)])
  reading = threading.Thread(target=next, args=(iter(mixed), None), daemon=True)
  reading.start()
  wait_until(lambda: 'table relabelled' in mixed.explain_wait())
  assert 'holds 0 unrolls of the 2 it needs; it waits for the relabellers.' in mixed.explain_wait()
  write([address], 0, 2, (RELABELLED,))
  reading.join(DEADLINE)
  assert not reading.is_alive()


def test_the_limiter_of_relabelled_unrolls_can_always_be_met(serve):
  """Readers wait for the first copies alone, writers for samples alone."""
  address = serve(several(relabelled_size=8, relabelled_min=2))
  writer = UnrollWriter([address], COLUMNS, tables=(RELABELLED,))
  writer.start()
  released = [threading.Event() for _ in range(5)]
  for i in range(5):  # Four times four fit, with eight samples between.
    writer.put(numbered_unrolls(4 * i, 4), released[i].set)
  assert released[1].wait(DEADLINE)
  assert counts(address, RELABELLED) == (8, 0) and sizes(address)[RELABELLED] == 8
  assert not released[2].wait(0.5), 'writers are not held back'
  batches = iter(reader(address, RELABELLED, 8))
  next(batches)
  assert released[3].wait(DEADLINE)
  # No copy comes any more, and samples go on.
  reading = threading.Thread(target=lambda: list(itertools.islice(batches, 20)), daemon=True)
  reading.start()
  reading.join(DEADLINE)
  assert not reading.is_alive(), 'readers are held back'
  wait_until(lambda: counts(address, RELABELLED)[0] == 20, writer.check)
  assert sizes(address)[RELABELLED] == 8
  assert counts(address, RELABELLED)[1] >= 21 * 8
  writer.close()


def test_copies_that_are_sampled_once_hold_their_readers_back(serve):
  """As many samples as copies, and no more."""
  address = serve(tables.relabelled_table(8, 2, 0.0, each_once=True))
  batches = iter(reader(address, RELABELLED, 4))
  for total in (4, 8, 12):
    write_more = UnrollWriter([address], COLUMNS, tables=(RELABELLED,))
    write_more.start()
    write_more.put(numbered_unrolls(total, 4), lambda: None)
    next(batches)
    wait_until(lambda n=total: counts(address, RELABELLED) == (n, n), write_more.check)
    write_more.close()
  waiting = threading.Thread(target=lambda: next(batches), daemon=True)
  waiting.start()
  waiting.join(0.5)
  assert waiting.is_alive() and counts(address, RELABELLED) == (12, 12)


def test_a_checkpoint_has_every_table(serve, tmp_path):
  port = unused_port()
  server = replay.ReplayServer(several(), None, 'replay/0', str(tmp_path / 'kept'), 0.0, port)
  write([f'localhost:{port}'], 0, 5, (UNROLLS, ORIGINALS))
  write([f'localhost:{port}'], 100, 3, (RELABELLED,))
  server.write_checkpoint()
  server.close()
  restored = serve(several(), 'kept')
  assert sizes(restored) == {UNROLLS: 5, ORIGINALS: 5, RELABELLED: 3}
  for table, found in ((UNROLLS, range(5)), (ORIGINALS, range(5)), (RELABELLED, range(100, 103))):
    batch = next(iter(reader(restored, table, 120)))
    assert set(numbers(batch)) == set(found)


def test_tables_with_other_extras_are_read_alone(serve):
  address = serve(several())
  agent, spec = RelabellingAgent(extra='target'), CounterEnvironment([1]).spec()
  batch_parts = BatchPart(UNROLLS, 2), BatchPart(RELABELLED, 2)
  with pytest.raises(ValueError, match='the tables unrolls and relabelled: relabel returns other'):
    make_reader(agent, spec, [address], batch_parts)
  assert isinstance(make_reader(agent, spec, [address], batch_parts[1:]), UnrollReader)
  agent = RelabellingAgent()
  assert isinstance(make_reader(agent, spec, [address], batch_parts), MixedReader)
