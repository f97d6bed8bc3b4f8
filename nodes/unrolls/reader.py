"""Samples batches of unrolls from replay."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import reverb
import tensorflow as tf
from absl import logging

from agents.types import Array, Unroll
from nodes.runtime import rpc
from nodes.unrolls.duplicates import DuplicateFilter
from nodes.unrolls.packing import PACKED, UNROLL_ID, Columns
from nodes.unrolls.tables import TABLE

# Raised by calls to an unavailable server: an exceeded deadline, or a status without its own class.
_AWAY = (reverb.ReverbError, RuntimeError)


class Batch(NamedTuple):
  """A sampled batch of unrolls; fields of `unrolls` are `[B, L, ...]`."""

  unrolls: Unroll
  unroll_ids: np.ndarray  # int64 `[B]`, unique in the run.
  keys: np.ndarray  # uint64 `[B / K]`, of Reverb's items of K unrolls.
  probabilities: np.ndarray  # float32 `[B]`, of each item at its server.


class UnrollReader:
  """Samples batches in equal parts from one or more servers, and updates priorities.

  Row i of a batch comes from server `i // (B / number of servers)`.
  """

  def __init__(
    self, addresses: Sequence[str], columns: Columns, batch_size: int, max_in_flight: int
  ):
    """Initialises a reader.

    Args:
      addresses: host:port of each server.
      columns: layout of an item.
      batch_size: unrolls B in a batch; each server's equal share is a whole number of items.
      max_in_flight: maximum number of unrolls in transfer beyond a batch. They count as sampled and
        have left a queue, so they add to the policy lag.
    """
    self._addresses = addresses
    self._columns = columns
    # The numbers of items: of a batch, and in transfer, from one server.
    self._share, rest = divmod(batch_size, len(addresses) * columns.unrolls_per_item)
    if rest:
      raise ValueError(
        f'a batch of {batch_size} unrolls is no whole number of items of {columns.unrolls_per_item} '
        f'from each of {len(addresses)} servers.'
      )
    self._max_in_flight = max(1, max_in_flight // (len(addresses) * columns.unrolls_per_item))
    self._clients = [reverb.Client(address) for address in addresses]
    # Bounded, so that a learner that outruns the servers waits here and no update is dropped.
    self._updates: queue.Queue[tuple[np.ndarray, Array]] = queue.Queue(maxsize=4)
    self._error: BaseException | None = None
    threading.Thread(target=self._send_updates, name='priorities', daemon=True).start()

  def __iter__(self) -> Iterator[Batch]:
    """Yields batches without end."""
    shards = [self._once(self._samples(address)) for address in self._addresses]
    while True:
      parts = [next(shard) for shard in shards]
      columns = self._columns.unpack(_joined([part.data[PACKED] for part in parts]))
      yield Batch(
        self._columns.unflatten(columns),
        columns[UNROLL_ID],
        _joined([part.info.key for part in parts]),
        self._of_each_unroll(_joined([part.info.probability for part in parts])).astype(np.float32),
      )

  def update_priorities(self, keys: np.ndarray, priorities: Array) -> bool:
    """Queues a priority update for another thread; the newest update of an item wins.

    Items that are no longer in replay are skipped. Waits at most 0.2 seconds for room in the queue.

    Args:
      keys: uint64 `[B]`, of a batch of this reader, in its order; an item has one unroll.
      priorities: float32 `[B]`, possibly still in transfer from a device.

    Returns:
      Whether the update was queued. If not, earlier updates wait for a busy or unavailable server, and
      the caller must try again.

    Raises:
      RuntimeError: if an earlier update failed for another reason than an unavailable server.
    """
    if self._error is not None:
      raise RuntimeError('replay no longer takes priorities') from self._error
    try:
      self._updates.put((keys, priorities), timeout=0.2)
    except queue.Full:
      return False
    return True

  def measure(self) -> dict[str, float]:
    """Returns unrolls held, and unrolls written and sampled since each server's start.

    All values are nan if a server is away.
    """
    try:
      tables = [client.server_info(timeout=1)[TABLE] for client in self._clients]
    except _AWAY:
      names = 'replay_size', 'samples_per_insert', 'unrolls_inserted', 'unrolls_sampled'
      return dict.fromkeys(names, float('nan'))
    inserts = sum(t.rate_limiter_info.insert_stats.completed for t in tables)
    samples = sum(t.rate_limiter_info.sample_stats.completed for t in tables)
    return {
      'replay_size': float(sum(t.current_size for t in tables) * self._columns.unrolls_per_item),
      'samples_per_insert': samples / inserts if inserts else float('nan'),
      'unrolls_inserted': float(inserts * self._columns.unrolls_per_item),
      'unrolls_sampled': float(samples * self._columns.unrolls_per_item),
    }

  def explain_wait(self) -> str:
    """Returns why no batch can be sampled, in one sentence for the log."""
    for client, address in zip(self._clients, self._addresses, strict=True):
      try:
        table = client.server_info(timeout=1)[TABLE]
      except _AWAY:
        return f'the replay server at {address} does not answer.'
      held, needed = (
        count * self._columns.unrolls_per_item
        for count in (table.current_size, table.rate_limiter_info.min_size_to_sample)
      )
      if held < needed:
        return (
          f'the replay server at {address} holds {held} unrolls of the {needed} it needs; it waits for '
          'the actors.'
        )
    return 'replay holds unrolls, but their ratio to samples is reached; it waits for the actors.'

  def _of_each_unroll(self, values: np.ndarray) -> np.ndarray:
    """Returns one value for each unroll, `[M K]`, of one for each item, `[M]`."""
    return np.repeat(values, self._columns.unrolls_per_item)

  def _once(self, samples: Iterator[Any]) -> Iterator[Any]:
    """Drops duplicates that a writer sent twice, and refills batches with the next samples."""
    repeats, held = DuplicateFilter(), None
    for sample in samples:
      # A writer sends a whole item again, so its first unroll stands for all.
      first_ids = self._columns.unroll_ids(sample.data[PACKED])[:, 0]
      wanted = repeats.keep_mask(first_ids, sample.info.times_sampled)
      if not wanted.all():
        dropped = sum(~wanted) * self._columns.unrolls_per_item
        logging.info('dropped %d duplicate unrolls', dropped)
        sample = jax.tree.map(lambda x, w=wanted: x[w], sample)
      if held is not None:
        sample, held = jax.tree.map(lambda *parts: np.concatenate(parts), held, sample), None
      count = len(sample.info.key)
      if count < self._share:
        held = sample
        continue
      if count > self._share:
        held = jax.tree.map(lambda x: x[self._share :], sample)
        sample = jax.tree.map(lambda x: x[: self._share], sample)
      yield sample

  def _samples(self, address: str) -> Iterator[Any]:
    dataset = reverb.TrajectoryDataset(
      server_address=address,
      table=TABLE,
      dtypes={PACKED: tf.uint8},
      shapes={PACKED: tf.TensorShape((self._columns.item_bytes,))},
      max_in_flight_samples_per_worker=self._max_in_flight,
      num_workers_per_iterator=1,
    ).batch(self._share, drop_remainder=True)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return dataset.with_options(options).as_numpy_iterator()

  def _send_updates(self) -> None:
    try:
      while True:
        keys, priorities = self._updates.get()
        values = np.asarray(priorities, np.float64).tolist()
        for i, client in enumerate(self._clients):
          part = slice(i * self._share, (i + 1) * self._share)
          _mutate(client, dict(zip(keys[part].tolist(), values[part], strict=True)))
    except BaseException as error:
      self._error = error


def _mutate(client: reverb.Client, priorities: dict[int, float]) -> None:
  """Sets priorities; retries while the server is unavailable."""
  pauses = rpc.backoff()
  while True:
    try:
      client.mutate_priorities(TABLE, priorities)
      return
    except _AWAY as error:
      logging.warning('could not set priorities, retrying: %s', error)
      time.sleep(next(pauses))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
  return parts[0] if len(parts) == 1 else np.concatenate(parts)
