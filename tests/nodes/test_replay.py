"""Replay, against a real Reverb server."""

import functools
import itertools
import socket
import threading

import jax
import numpy as np
import pytest

from agents.types import Timestep, Unroll
from launchers import core
from nodes import replay

L = 3


def _unrolls(first, count):
  """Unrolls numbered from `first`, fields `[count, L, ...]`, every value telling which it is."""
  number = np.arange(first, first + count)
  rows = number[:, None] * 10 + np.arange(L)
  return Unroll(
    timestep=Timestep(
      step_type=(rows % 3).astype(np.uint8),
      reward=rows.astype(np.float32),
      discount=np.ones((count, L), np.float32),
      observation=np.broadcast_to(rows[..., None, None] % 256, (count, L, 4, 2)).astype(np.uint8),
    ),
    action=rows.astype(np.int32),
    extras={'logits': np.stack([rows, -rows], axis=-1).astype(np.float32)},
    policy_version=rows.astype(np.int32),
    core_state={'lstm': (number[:, None] * np.ones((1, 5), np.float32), number.astype(np.float32))},
    environment_id=number.astype(np.int32),
  )


COLUMNS = replay.Columns(jax.tree.map(lambda x: x[0], _unrolls(0, 1)))


@pytest.fixture
def queue_address():
  port = core.free_ports(1)[0]
  server = replay.ReplayServer(functools.partial(replay.queue_table, 4), port)
  yield f'localhost:{port}'
  server._server.stop()


def test_columns_name_every_leaf_and_put_them_back():
  unroll = _unrolls(3, 1)
  columns = COLUMNS.flatten(unroll)
  assert set(columns) == {
    'timestep/step_type',
    'timestep/reward',
    'timestep/discount',
    'timestep/observation',
    'action',
    'extras/logits',
    'policy_version',
    'core_state/lstm/0',
    'core_state/lstm/1',
    'environment_id',
  }
  again = COLUMNS.unflatten(dict(reversed(columns.items())))
  jax.tree.map(np.testing.assert_array_equal, again, unroll)


def test_the_queue_delivers_every_unroll_once_in_order_and_whole(queue_address):
  writer = replay.UnrollWriter(queue_address, COLUMNS)
  released = []
  for first in range(0, 40, 5):
    writer.put(_unrolls(first, 5), functools.partial(released.append, first))
  batches = replay.sample_batches(queue_address, COLUMNS, batch_size=4, max_in_flight=2)
  for i, batch in enumerate(itertools.islice(batches, 10)):
    jax.tree.map(np.testing.assert_array_equal, batch.unrolls, _unrolls(4 * i, 4))
  assert released == list(range(0, 40, 5))
  writer.check()
  writer.close()


def test_a_full_queue_holds_the_writer_back_and_drops_nothing(queue_address):
  writer = replay.UnrollWriter(queue_address, COLUMNS)
  released = [threading.Event() for _ in range(4)]
  for i in range(4):  # The queue takes 4 items, these are 12.
    writer.put(_unrolls(3 * i, 3), released[i].set)
  assert released[1].wait(30)
  assert not released[2].wait(1.0), 'the third batch was taken though the second does not fit'
  assert replay.occupancy(replay.reverb.Client(queue_address)) == 4
  batches = replay.sample_batches(queue_address, COLUMNS, batch_size=3, max_in_flight=1)
  seen = [b.unrolls.environment_id.tolist() for b in itertools.islice(batches, 4)]
  assert list(itertools.chain(*seen)) == list(range(12))
  writer.close()


def test_an_occupied_port_is_refused():
  with socket.socket(socket.AF_INET6) as other:
    other.bind(('', 0))
    other.listen()
    with pytest.raises(OSError, match='in use'):
      replay.ReplayServer(functools.partial(replay.queue_table, 4), other.getsockname()[1])


def test_a_writer_that_fails_says_so(queue_address):
  writer = replay.UnrollWriter(queue_address, COLUMNS)
  bad = _unrolls(0, 2)._replace(action=np.zeros((1, L), np.int32))
  writer.put(bad, lambda: None)
  writer._thread.join(30)
  with pytest.raises(IndexError):
    writer.check()
