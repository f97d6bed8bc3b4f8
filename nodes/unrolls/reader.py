"""Samples batches of unrolls from replay."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from agents.types import Array, Unroll
from nodes.runtime import rpc
from nodes.unrolls.duplicates import DuplicateFilter
from nodes.unrolls.packing import UNROLL_ID, Columns
from nodes.unrolls.replay_client import ReplayAwayError, ReplayClient, Sample
from nodes.unrolls.table_names import UNROLLS, WRITERS


class Batch(NamedTuple):
  """A sampled batch of unrolls; fields of `unrolls` are `[B, L, ...]`."""

  unrolls: Unroll
  unroll_ids: np.ndarray  # int64 `[B]`, unique in the run.
  keys: np.ndarray  # uint64 `[B / K]`, of Reverb's items of K unrolls.
  probabilities: np.ndarray  # float32 `[B]`, of each item at its server.
  table_sizes: np.ndarray  # float32 `[B]`, items there at that time.


class UnrollReader:
  """Samples batches of one table in equal parts from one or more servers, and updates priorities.

  Row i of a batch comes from server `i // (B / number of servers)`.

  Attributes:
    table: name of the table.
    batch_size: unrolls B in a batch.
  """

  def __init__(
    self,
    addresses: Sequence[str],
    columns: Columns,
    batch_size: int,
    max_in_flight: int,
    table: str = UNROLLS,
  ):
    """Initialises a reader.

    Args:
      addresses: host:port of each server.
      columns: layout of an item.
      batch_size: unrolls B in a batch; each server's equal share is a whole number of items.
      max_in_flight: maximum number of unrolls in transfer beyond a batch. They count as sampled and
        have left a queue, so they add to the policy lag.
      table: name of the table, on every server.
    """
    self.table = table
    self.batch_size = batch_size
    self._addresses = addresses
    self._columns = columns
    # The numbers of items: of a batch, and in transfer, from one server.
    self._share, rest = divmod(batch_size, len(addresses) * columns.unrolls_per_item)
    if rest:
      raise ValueError(
        f'a batch of {batch_size} unrolls is not a whole number of items of {columns.unrolls_per_item} '
        f'from each of {len(addresses)} servers.'
      )
    self._max_in_flight = max(1, max_in_flight // (len(addresses) * columns.unrolls_per_item))
    self._clients = [ReplayClient(address) for address in addresses]
    # Bounded, so that a learner that outruns the servers waits here and no update is dropped.
    self._updates: queue.Queue[tuple[np.ndarray, Array, slice]] = queue.Queue(maxsize=4)
    self._error: BaseException | None = None
    threading.Thread(target=self._send_updates, name='priorities', daemon=True).start()

  def __iter__(self) -> Iterator[Batch]:
    """Yields batches without end."""
    sources = [self._samples(client) for client in self._clients]
    while True:
      samples = [s for source in sources for s in itertools.islice(source, self._share)]
      columns = self._columns.unpack([sample.columns[0].reshape(-1) for sample in samples])
      yield Batch(
        self._columns.unflatten(columns),
        columns[UNROLL_ID],
        np.array([sample.key for sample in samples], np.uint64),
        self._of_each_unroll([sample.probability for sample in samples]),
        self._of_each_unroll([sample.table_size for sample in samples]),
      )

  def update_priorities(
    self, keys: np.ndarray, priorities: Array, rows: slice = slice(None)
  ) -> bool:
    """Queues a priority update for another thread; the newest update of an item wins.

    Items that are no longer in replay are skipped. Waits at most 0.2 seconds for room in the queue.

    Args:
      keys: uint64 `[B]`, of a batch of this reader, in its order; an item has one unroll.
      priorities: float32 `[B]`, possibly still in transfer from a device.
      rows: those of `priorities` that belong to `keys`.

    Returns:
      Whether the update was queued. If not, earlier updates wait for a busy or unavailable server, and
      the caller must try again.

    Raises:
      RuntimeError: if an earlier update failed for another reason than an unavailable server.
    """
    if self._error is not None:
      raise RuntimeError('replay no longer takes priorities') from self._error
    try:
      self._updates.put((keys, priorities, rows), timeout=0.2)
    except queue.Full:
      return False
    return True

  def measure(self) -> dict[str, float]:
    """Returns unrolls held, and unrolls written and sampled since each server's start.

    All values are nan if a server is unavailable. Names begin with the table's, as in
    'relabelled_replay_size', except those of `UNROLLS`.
    """
    names = ['replay_size', 'samples_per_insert', 'unrolls_inserted', 'unrolls_sampled']
    if self.table != UNROLLS:
      names = [f'{self.table}_{name}' for name in names]
    try:
      tables = [client.server_info(timeout=1)[self.table] for client in self._clients]
    except ReplayAwayError:
      return dict.fromkeys(names, float('nan'))
    inserts = sum(t.rate_limiter_info.insert_stats.completed for t in tables)
    samples = sum(t.rate_limiter_info.sample_stats.completed for t in tables)
    values = (
      float(sum(t.current_size for t in tables) * self._columns.unrolls_per_item),
      samples / inserts if inserts else float('nan'),
      float(inserts * self._columns.unrolls_per_item),
      float(samples * self._columns.unrolls_per_item),
    )
    return dict(zip(names, values, strict=True))

  def explain_wait(self) -> str:
    """Returns why no batch can be sampled, in one sentence for the log."""
    writers = WRITERS.get(self.table, 'writers')
    for client, address in zip(self._clients, self._addresses, strict=True):
      try:
        table = client.server_info(timeout=1)[self.table]
      except ReplayAwayError:
        return f'the replay server at {address} does not answer.'
      held, needed = (
        count * self._columns.unrolls_per_item
        for count in (table.current_size, table.rate_limiter_info.min_size_to_sample)
      )
      if held < needed:
        return (
          f'the table {self.table} of the replay server at {address} holds {held} unrolls of the '
          f'{needed} it needs; it waits for the {writers}.'
        )
    return (
      f'the table {self.table} has reached its ratio of samples to inserts; it waits for new unrolls of '
      f'the {writers}.'
    )

  def _of_each_unroll(self, values: Sequence[float]) -> np.ndarray:
    """Returns one value for each unroll, float32 `[M K]`, of those of M items."""
    return np.repeat(np.array(values, np.float32), self._columns.unrolls_per_item)

  def _samples(self, client: ReplayClient) -> Iterator[Sample]:
    """Yields the items of one server without end, except duplicates that a writer sent twice."""
    repeats = DuplicateFilter()
    with contextlib.closing(client.sampler(self.table, self._max_in_flight)) as samples:
      for sample in samples:
        # A writer sends a whole item again, so its first unroll stands for all.
        first_id = self._columns.first_id(sample.columns[0].reshape(-1))
        if repeats.keeps(first_id, sample.times_sampled):
          yield sample
        else:
          logging.info('dropped %d duplicate unrolls', self._columns.unrolls_per_item)

  def _send_updates(self) -> None:
    try:
      while True:
        keys, priorities, rows = self._updates.get()
        values = np.asarray(priorities, np.float64)[rows].tolist()
        for i, client in enumerate(self._clients):
          part = slice(i * self._share, (i + 1) * self._share)
          _mutate(client, self.table, dict(zip(keys[part].tolist(), values[part], strict=True)))
    except BaseException as error:
      self._error = error


def occupancy(address: str, table: str) -> tuple[int, int] | None:
  """Returns the items that a table holds and can hold; None while its server is unavailable.

  Args:
    address: host:port of the Reverb server.
    table: name of the table.
  """
  try:
    with contextlib.closing(ReplayClient(address)) as client:
      info = client.server_info(timeout=1)[table]
  except ReplayAwayError:
    return None
  return info.current_size, info.max_size


def _mutate(client: ReplayClient, table: str, priorities: dict[int, float]) -> None:
  """Sets priorities; retries while the server is unavailable."""
  pauses = rpc.backoff()
  while True:
    try:
      client.mutate_priorities(table, priorities)
      return
    except ReplayAwayError as error:
      logging.warning('could not set priorities, retrying: %s', error)
      time.sleep(next(pauses))
