"""Samples batches whose rows come from several tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
from acme import specs

from agents.agent import Agent
from agents.types import Array
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from nodes.unrolls.reader import Batch, UnrollReader
from nodes.unrolls.table_names import BatchPart


class MixedReader:
  """Joins the batches of readers of several tables, and updates the priorities of each table.

  A batch has the rows of the first reader, then those of the second, and so on. Its probabilities are
  those of sampling from the tables in proportion to their sizes, so that 1 / (N P), with N items in all,
  corrects for the priorities within each table and leaves the shares of the tables as they are.

  With `quotas` the numbers of rows change from batch to batch. The first table then sets the pace: each
  batch takes a whole batch of it, and rows beyond its quota are dropped. So its ratio of samples to
  inserts means the same at every quota, 0 included. Rows of the other tables wait for the next batch.
  """

  def __init__(
    self, readers: Sequence[UnrollReader], quotas: Callable[[], Sequence[int]] | None = None
  ):
    """Initialises a reader.

    Args:
      readers: one of each table; their unrolls have the same layout.
      quotas: returns the rows of each table in the next batch, at most a batch of its reader; None for
        all rows of all readers. For tables without priorities.
    """
    self._readers = readers
    self._quotas = quotas
    self._waits_for = readers[0]

  def __iter__(self) -> Iterator[Batch]:
    """Yields batches without end."""
    sources = [(reader, _Rows(reader)) for reader in self._readers]
    pace = np.random.default_rng(0)  # Chooses among rows that Reverb has sampled.
    while True:
      parts = []
      quotas = self._quotas() if self._quotas else [r.batch_size for r in self._readers]
      for (reader, rows), quota in zip(sources, quotas, strict=True):
        self._waits_for = reader
        if self._quotas and reader is self._readers[0]:
          kept = pace.permutation(reader.batch_size)[:quota]
          parts.append(_at(rows.take(reader.batch_size), kept))
        elif quota:
          parts.append(rows.take(quota))
      batch = jax.tree.map(lambda *x: np.concatenate(x), *parts)
      total = sum(np.mean(part.table_sizes) for part in parts if len(part.unroll_ids))
      yield batch._replace(probabilities=batch.probabilities * batch.table_sizes / total)

  def update_priorities(self, keys: np.ndarray, priorities: Array) -> bool:
    """Queues the updates of every table; see `UnrollReader.update_priorities`.

    If it returns False, some may be queued already. Queueing them again does no harm. Not for readers
    with quotas.
    """
    start = 0
    for reader in self._readers:
      rows = slice(start, start + reader.batch_size)
      if not reader.update_priorities(keys[rows], priorities, rows):
        return False
      start = rows.stop
    return True

  def measure(self) -> dict[str, float]:
    """Returns the measurements of every table."""
    return {name: value for reader in self._readers for name, value in reader.measure().items()}

  def explain_wait(self) -> str:
    """Returns why the table that is being read cannot be sampled, in one sentence for the log."""
    return self._waits_for.explain_wait()


class _Rows:
  """The rows of a reader's batches, taken in other numbers."""

  def __init__(self, reader: UnrollReader):
    self._batches = iter(reader)
    self._left: Batch | None = None

  def take(self, count: int) -> Batch:
    """Returns the next `count` rows; a whole batch costs no copy."""
    parts, wanted = [], count
    while wanted:
      batch = self._left if self._left is not None else next(self._batches)
      size = len(batch.unroll_ids)
      parts.append(batch if size <= wanted else _at(batch, slice(wanted)))
      self._left = _at(batch, slice(wanted, None)) if size > wanted else None
      wanted -= min(size, wanted)
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: np.concatenate(x), *parts)


def _at(batch: Batch, rows: slice | np.ndarray) -> Batch:
  """Returns some rows of a batch whose items have one unroll each."""
  selected: Batch = jax.tree.map(lambda x: x[rows], batch)
  return selected


def make_reader(
  agent: Agent,
  environment_spec: specs.EnvironmentSpec,
  addresses: Sequence[str],
  batch_parts: Sequence[BatchPart],
  unrolls_per_item: int = 1,
  quotas: Callable[[], Sequence[int]] | None = None,
  max_in_flight: int | None = None,
) -> UnrollReader | MixedReader:
  """Returns a reader of an agent's unrolls, from one table or several.

  Args:
    agent: the algorithm.
    environment_spec: of one environment.
    addresses: host:port of each Reverb server.
    batch_parts: the tables, and the unrolls of a batch from each.
    unrolls_per_item: unrolls in a Reverb item.
    quotas: see `MixedReader`.
    max_in_flight: maximum number of unrolls of a table in transfer beyond a batch; None: as many as a
      batch has.

  Raises:
    ValueError: if the unrolls of two of the tables differ in layout.
  """
  readers, layouts = [], []
  for table, unrolls in batch_parts:
    columns = Columns(unroll_spec(agent, environment_spec, table), unrolls_per_item)
    in_flight = unrolls if max_in_flight is None else min(unrolls, max_in_flight)
    readers.append(UnrollReader(addresses, columns, unrolls, in_flight, table))
    layouts.append(columns.stored)
    if layouts[-1] != layouts[0]:
      raise ValueError(
        f'a batch cannot have unrolls of the tables {batch_parts[0].table} and {table}: relabel returns '
        'other extras than act; read one of the two.'
      )
  return readers[0] if len(readers) == 1 else MixedReader(readers, quotas)
