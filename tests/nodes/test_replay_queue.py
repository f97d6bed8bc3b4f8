"""The queue, and what a reader gets from it, against a real Reverb server."""

import functools
import itertools
import secrets

import jax
import numpy as np
import pytest

from nodes.unrolls import tables
from nodes.unrolls.packing import Columns
from nodes.unrolls.reader import UnrollReader
from nodes.unrolls.writer import UnrollWriter
from tests.nodes import nested
from tests.nodes.numbered import COLUMNS, EXAMPLE, numbered_unrolls
from tests.waiting import wait_until


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
  wait_until(lambda: released == list(range(0, 40, 10)))
  assert ids == list(range(ids[0], ids[0] + 40))
  writer.check()
  writer.close()


@pytest.mark.slow
def test_several_servers_give_equal_parts_of_items_of_several_unrolls(serve):
  addresses = [serve(tables.queue_table(4), name) for name in ('a', 'b')]
  columns = Columns(EXAMPLE, unrolls_per_item=2)
  writer = UnrollWriter(addresses, columns)
  writer.start()
  writer.put(numbered_unrolls(0, 16), lambda: None)
  reader = UnrollReader(addresses, columns, batch_size=8, max_in_flight=4)
  seen = [batch.unrolls.environment_id.tolist() for batch in itertools.islice(reader, 2)]
  assert seen == [[0, 1, 4, 5, 2, 3, 6, 7], [8, 9, 12, 13, 10, 11, 14, 15]]
  writer.close()
  with pytest.raises(
    ValueError, match='6 unrolls is not a whole number of items of 2 from each of 2'
  ):
    UnrollReader(addresses, columns, batch_size=6, max_in_flight=4)


def test_items_of_several_unrolls_have_no_priorities(queue_address):
  writer = UnrollWriter([queue_address], Columns(EXAMPLE, 2), lambda unrolls: np.ones(4))
  writer.start()
  writer.put(numbered_unrolls(0, 4), lambda: None)
  with pytest.raises(ValueError, match='items of 2 unrolls have no priorities'):
    wait_until(lambda: False, writer.check)
  writer.close()


@pytest.mark.slow
def test_an_unroll_that_its_writer_sent_twice_is_delivered_once(queue_address, monkeypatch):
  """As after the death of a server that had not confirmed what it had given already."""
  monkeypatch.setattr(secrets, 'randbits', lambda bits: 5)
  writers = [UnrollWriter([queue_address], COLUMNS) for _ in range(2)]
  batches = iter(UnrollReader([queue_address], COLUMNS, 4, max_in_flight=2))
  seen = []
  for writer, count in zip(writers, (6, 14), strict=True):  # The same ids from 5 << 32.
    writer.start()
    writer.put(numbered_unrolls(0, count), lambda: None)
    wait_until(lambda writer=writer, count=count: writer.written == count)
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
