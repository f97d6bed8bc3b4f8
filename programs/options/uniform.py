"""Replay that is sampled uniformly, on servers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from nodes.unrolls import tables
from nodes.unrolls.table_names import UNROLLS
from programs.options.prioritized import PrioritizedOptions


@dataclasses.dataclass(frozen=True)
class UniformOptions(PrioritizedOptions):
  """Replay that is sampled uniformly, for an agent without priorities, at the same fixed ratio."""

  priority_exponent: float = 0.0

  def unrolls_per_item(self, env_group_size: int) -> int:
    """Returns the unrolls in an item: as many as divide an environment group and a shard's batch.

    They are of different environments. Without priorities they may share an item, which costs the
    learner as much to read as a single unroll.
    """
    return math.gcd(env_group_size, self.batch_size // self.num_replay_shards)

  def make_tables(self, env_group_size: int) -> Sequence[tables.Table]:
    """Returns the uniform table of each replay server."""
    unrolls = self.unrolls_per_item(env_group_size)
    min_size = math.ceil(self.min_replay_size / (self.num_replay_shards * unrolls))
    least = max(1.0, self.samples_per_insert)  # Less would let actors and learner deadlock.
    return tables.uniform_table(
      max_size=max(min_size, self.replay_size // (self.num_replay_shards * unrolls)),
      min_size=min_size,
      samples_per_insert=self.samples_per_insert,
      error_buffer=max(least, self.samples_per_insert_error / unrolls),
      name=UNROLLS,
    )

  def _check(self) -> None:
    if self.priority_exponent:
      raise ValueError(
        f'--priority_exponent={self.priority_exponent} has no effect: this agent samples uniformly and '
        'computes no priorities; leave it out.'
      )
