"""Replay between whose tables Bellman updaters compute the targets of Q-learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from agents.options import option
from nodes.unrolls import tables
from nodes.unrolls.table_names import ORIGINALS, RELABELLED, BatchPart
from programs.options.uniform import UniformOptions


@dataclasses.dataclass(frozen=True)
class BellmanOptions(UniformOptions):
  """Replay with Bellman updaters, relabellers of every unroll that is trained on.

  The ratio of samples to inserts holds for the updaters. The learner samples each of their copies once
  on average, so a graph does as many updates with them as without.
  """

  bellman_updaters: int = option(
    1,
    'nodes that sample unrolls of replay, compute their targets with fetched parameters, and write them '
    'to the table that the learner reads; 0: the learner computes them itself',
    at_least=0,
  )
  train_size: int = option(
    0,
    'capacity, in unrolls, of the table that Bellman updaters write and the learner samples, over the '
    'shards of a replica; 0: 10 batches',
    at_least=0,
  )

  @property
  def num_relabellers(self) -> int:
    """The Bellman updaters; 0 for none."""
    return self.bellman_updaters

  @property
  def relabelled(self) -> int:
    """Relabelled unrolls in each replica's part of a learner batch: all of it."""
    return self.batch_size

  @property
  def written_tables(self) -> tuple[str, ...]:
    """Tables of replay that each new unroll is written to."""
    return (ORIGINALS,) if self.bellman_updaters else super().written_tables

  @property
  def batch_parts(self) -> tuple[BatchPart, ...]:
    """The unrolls that each replica adds to a learner batch, by table of replay."""
    return (
      (BatchPart(RELABELLED, self.batch_size),) if self.bellman_updaters else super().batch_parts
    )

  def unrolls_per_item(self, env_group_size: int) -> int:
    """Returns the unrolls in an item: one where Bellman updaters copy them."""
    return 1 if self.bellman_updaters else super().unrolls_per_item(env_group_size)

  def make_tables(self, env_group_size: int) -> Sequence[tables.Table]:
    """Returns the tables of each replay server, two if there are Bellman updaters."""
    if not self.bellman_updaters:
      return super().make_tables(env_group_size)
    originals = self._originals(self.samples_per_insert, self.samples_per_insert_error)
    copies = self._copies(self._size_of_copies(self.train_size), each_once=True)
    return tables.all_tables(originals, copies)

  def _check(self) -> None:
    if not self.bellman_updaters:
      self._require_default('--bellman_updaters', 'train_size')
    elif self._size_of_copies(self.train_size) < self.batch_size:
      raise ValueError(
        f'--train_size={self.train_size} is smaller than --batch_size={self.batch_size}; make it at '
        'least as large, or 0 to have it chosen.'
      )
