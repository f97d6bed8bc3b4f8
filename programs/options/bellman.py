"""Options of programs in which Bellman updaters compute the targets of Q-learning."""

from __future__ import annotations

import dataclasses

from agents.options import option, with_default
from nodes.unrolls.table_names import ORIGINALS, RELABELLED, BatchPart
from programs.options.prioritized import PrioritizedConfig
from programs.options.relabelled import RelabelledConfig


@dataclasses.dataclass(frozen=True)
class BellmanConfig(RelabelledConfig):
  """Options of Bellman updaters, relabellers of every unroll that is trained on."""

  priority_exponent: float = with_default(PrioritizedConfig, 'priority_exponent', 0.0)
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
    """Number of relabellers; 0 for none."""
    return self.bellman_updaters

  @property
  def relabelled(self) -> int:
    """Relabelled unrolls in each replica's part of a learner batch; as many from each shard."""
    return self.batch_size

  @property
  def given_relabelled_size(self) -> int:
    """Capacity of the table of relabelled unrolls as the user set it; 0: to be chosen."""
    return self.train_size

  @property
  def tables(self) -> tuple[str, ...]:
    """Tables of replay that each new unroll is written to."""
    return (ORIGINALS,) if self.bellman_updaters else super().tables

  @property
  def batch_parts(self) -> tuple[BatchPart, ...]:
    """The unrolls that each replica adds to a learner batch, by table of replay."""
    return (
      (BatchPart(RELABELLED, self.batch_size),) if self.bellman_updaters else super().batch_parts
    )

  def _check(self) -> None:
    if self.priority_exponent:
      raise ValueError(
        f'--priority_exponent={self.priority_exponent} has no effect: this agent samples uniformly and '
        'computes no priorities; leave it out.'
      )
    if not self.bellman_updaters:
      self._require_default('--bellman_updaters', 'train_size')
    elif self.relabelled_size < self.batch_size:
      raise ValueError(
        f'--train_size={self.train_size} is smaller than --batch_size={self.batch_size}; make it at '
        'least as large, or 0 to have it chosen.'
      )
