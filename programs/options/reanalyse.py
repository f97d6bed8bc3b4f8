"""Prioritized replay in which relabellers refresh targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from agents.options import option
from nodes.unrolls import tables
from nodes.unrolls.table_names import ORIGINALS, RELABELLED, UNROLLS, BatchPart
from programs.options.prioritized import PrioritizedOptions


@dataclasses.dataclass(frozen=True)
class ReanalyseOptions(PrioritizedOptions):
  """Prioritized replay, and relabellers that compute fresh targets for unrolls in it."""

  reanalyse_nodes: int = option(
    0,
    'relabellers: nodes that search again from unrolls in replay, with fetched parameters; needs '
    '--reanalyse_share',
    at_least=0,
  )
  reanalyse_share: float = option(
    0.0,
    'share of the unrolls of a batch that --reanalyse_nodes have searched again, from 0 to below 1; '
    'MuZero Reanalyze: 0.8 of all updates (Schrittwieser et al. 2020, appendix H)',
    at_least=0,
    below=1,
  )
  reanalyse_size: int = option(
    0,
    'capacity, in unrolls, of the table that relabellers write and the learner samples, over the shards '
    'of a replica; 0: 10 times the relabelled unrolls of a batch',
    at_least=0,
  )

  @property
  def num_relabellers(self) -> int:
    """The nodes that search again; 0 for none."""
    return self.reanalyse_nodes

  @property
  def relabelled(self) -> int:
    """Relabelled unrolls in each replica's part of a learner batch; as many from each shard."""
    shards = self.num_replay_shards
    return round(self.reanalyse_share * self.batch_size / shards) * shards

  @property
  def written_tables(self) -> tuple[str, ...]:
    """Tables of replay that each new unroll is written to."""
    return (UNROLLS, ORIGINALS) if self.reanalyse_nodes else super().written_tables

  @property
  def batch_parts(self) -> tuple[BatchPart, ...]:
    """The unrolls that each replica adds to a learner batch, by table of replay."""
    if not self.reanalyse_nodes:
      return super().batch_parts
    new = self.batch_size - self.relabelled
    return (BatchPart(UNROLLS, new), BatchPart(RELABELLED, self.relabelled))

  @property
  def new_share(self) -> float:
    """Share of the unrolls of a batch that are not from relabellers."""
    return 1.0 - self.relabelled / self.batch_size

  def make_tables(self, env_group_size: int) -> Sequence[tables.Table]:
    """Returns the tables of each replay server, three if there are relabellers."""
    if not self.reanalyse_nodes:
      return super().make_tables(env_group_size)
    copies = self._copies(self._size_of_copies(self.reanalyse_size))
    return tables.all_tables(self._prioritized(self.new_share), self._originals(), copies)

  def _check(self) -> None:
    if bool(self.reanalyse_nodes) != bool(self.reanalyse_share):
      raise ValueError(
        f'--reanalyse_nodes={self.reanalyse_nodes} and --reanalyse_share={self.reanalyse_share} need '
        'each other: set both above 0, or leave both out.'
      )
    if not self.reanalyse_nodes:
      self._require_default('--reanalyse_nodes', 'reanalyse_size')
      return
    if not 0 < self.relabelled < self.batch_size:
      raise ValueError(
        f'--reanalyse_share={self.reanalyse_share} of --batch_size={self.batch_size} is '
        f'{self.relabelled} unrolls in equal parts from --num_replay_shards={self.num_replay_shards}; '
        'change one of them so that both tables give some.'
      )
    if self._size_of_copies(self.reanalyse_size) < self.relabelled:
      raise ValueError(
        f'--reanalyse_size={self.reanalyse_size} is smaller than the {self.relabelled} relabelled '
        'unrolls of a batch; make it at least as large, or 0 to have it chosen.'
      )
    least = max(1.0 / self.new_share, self.samples_per_insert)
    if self.samples_per_insert_error < least:
      raise ValueError(
        f'--samples_per_insert_error={self.samples_per_insert_error} is below {least:g}, the least with '
        f'--reanalyse_share={self.reanalyse_share}: actors and learner could deadlock; make it larger, '
        'or 0 to have it chosen.'
      )
