"""Samples batches whose rows come from several tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np
from acme import specs

from agents.agent import Agent
from agents.types import Array
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from nodes.unrolls.reader import Batch, UnrollReader
from nodes.unrolls.table_names import Share


class MixedReader:
  """Joins the batches of readers of several tables, and updates the priorities of each table.

  A batch has the rows of the first reader, then those of the second, and so on. Its probabilities are
  those of sampling from the tables in proportion to their sizes, so that 1 / (N P), with N items in all,
  corrects for the priorities within each table and leaves the shares of the tables as they are.
  """

  def __init__(self, readers: Sequence[UnrollReader]):
    """Initialises with a reader of each table; their unrolls have the same layout."""
    self._readers = readers
    self._waits_for = readers[0]

  def __iter__(self) -> Iterator[Batch]:
    """Yields batches without end."""
    sources = [(reader, iter(reader)) for reader in self._readers]
    while True:
      parts = []
      for reader, batches in sources:
        self._waits_for = reader
        parts.append(next(batches))
      batch = jax.tree.map(lambda *x: np.concatenate(x), *parts)
      total = sum(np.mean(part.table_sizes) for part in parts)
      yield batch._replace(probabilities=batch.probabilities * batch.table_sizes / total)

  def update_priorities(self, keys: np.ndarray, priorities: Array) -> bool:
    """Queues the updates of every table; see `UnrollReader.update_priorities`.

    If it returns False, some may be queued already. Queueing them again does no harm.
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


def make_reader(
  agent: Agent,
  environment_spec: specs.EnvironmentSpec,
  addresses: Sequence[str],
  shares: Sequence[Share],
  unrolls_per_item: int = 1,
) -> UnrollReader | MixedReader:
  """Returns a reader of an agent's unrolls, from one table or several.

  Args:
    agent: the algorithm.
    environment_spec: of one environment.
    addresses: host:port of each Reverb server.
    shares: the tables, and the unrolls of a batch from each.
    unrolls_per_item: unrolls in a Reverb item.

  Raises:
    ValueError: if the unrolls of two of the tables differ in layout.
  """
  readers, layouts = [], []
  for table, unrolls in shares:
    columns = Columns(unroll_spec(agent, environment_spec, table), unrolls_per_item)
    readers.append(UnrollReader(addresses, columns, unrolls, max_in_flight=unrolls, table=table))
    layouts.append(columns.stored)
    if layouts[-1] != layouts[0]:
      raise ValueError(
        f'a batch cannot have unrolls of the tables {shares[0].table} and {table}: relabel returns '
        'other extras than act; read one of the two.'
      )
  return readers[0] if len(readers) == 1 else MixedReader(readers)
