"""Replay that is a queue."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from agents.options import option
from nodes.unrolls import tables
from nodes.unrolls.table_names import UNROLLS
from programs.options.common import Expected
from programs.options.replay import Playing, ReplayOptions


@dataclasses.dataclass(frozen=True)
class QueueOptions(ReplayOptions):
  """A queue, which delivers each unroll once and holds the actors back while it is full."""

  queue_size: int = option(
    0,
    'capacity of the replay queues of a replica, in unrolls, over its shards; a small one keeps the '
    'policy lag small where the learner is the bottleneck; 0: half a batch, at least an item a shard',
  )

  @property
  def max_in_flight(self) -> int | None:
    """Unrolls in transfer to a learner beyond its batch: half of the queue, for they add to its lag."""
    return self.queue_size // 2

  def unrolls_per_item(self, env_group_size: int) -> int:
    """Returns the unrolls in an item: as many as divide an environment group and a shard's batch."""
    return math.gcd(env_group_size, self.batch_size // self.num_replay_shards)

  def make_tables(self, env_group_size: int) -> Sequence[tables.Table]:
    """Returns the queue of each replay server."""
    items = self.num_replay_shards * self.unrolls_per_item(env_group_size)
    return tables.queue_table(self.queue_size // items)

  def resolve(self, env_group_size: int) -> QueueOptions:
    """Returns the options with every 'choose for me' replaced by the choice."""
    least = self.num_replay_shards * self.unrolls_per_item(env_group_size)
    return dataclasses.replace(self, queue_size=self.queue_size or max(self.batch_size // 2, least))

  def check_items(self, env_group_size: int) -> None:
    """Raises ValueError, one sentence, unless each shard holds an item."""
    unrolls = self.unrolls_per_item(env_group_size)
    least = self.num_replay_shards * unrolls
    if self.queue_size < least:
      raise ValueError(
        f'--queue_size={self.queue_size} is smaller than {least}: an item has {unrolls} unrolls, and '
        f'each replay shard holds at least one; make it at least {least}.'
      )

  def expected(self, playing: Playing) -> Expected | None:
    """Returns what a run amounts to: an update for each batch of new unrolls."""
    new = sum(part.unrolls for part in self.batch_parts if part.table == UNROLLS)
    updates = playing.unrolls(playing.num_steps) // max(new, 1)
    return Expected(updates, updates, playing.steps_until(new))

  def check_start(self, num_steps: int, first_batch: int) -> None:
    """Raises ValueError, one sentence, if a run ends before the first batch."""
    if first_batch > num_steps:
      raise ValueError(
        f'--num_steps={num_steps} ends before the first batch of --batch_size={self.batch_size} '
        f'unrolls, after about {first_batch} actor_steps, so nothing would be learned; raise '
        '--num_steps, or lower --batch_size or --unroll_length.'
      )
