"""Options of programs whose replay is a queue."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeVar

from agents.options import option
from programs.options.actors import ActorsConfig

C = TypeVar('C', bound='QueueConfig')


@dataclasses.dataclass(frozen=True)
class QueueConfig(ActorsConfig):
  """Options of a queue that delivers each unroll once."""

  queue_size: int = option(
    0,
    'capacity of the replay queues of a replica, in unrolls, over its shards; a small one keeps the '
    'policy lag small where the learner is the bottleneck; 0: half a batch, at least an item a shard',
  )

  @property
  def unrolls_per_item(self) -> int:
    """Unrolls in an item of the queue: as many as divide an environment group and a shard's batch."""
    return math.gcd(self.env_group_size, self.batch_size // self.num_replay_shards)

  @property
  def max_in_flight(self) -> int:
    """Unrolls in transfer to a learner beyond its batch: half of the queue, for they add to its lag."""
    return self.queue_size // 2

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    config = super().resolve()
    size = config.queue_size or max(config.batch_size // 2, config._least_size)
    return dataclasses.replace(config, queue_size=size)

  @property
  def _least_size(self) -> int:
    """An item for each shard, in unrolls."""
    return self.num_replay_shards * self.unrolls_per_item

  def _check(self) -> None:
    if self.queue_size < self._least_size:
      raise ValueError(
        f'--queue_size={self.queue_size} is smaller than {self._least_size}: an item has '
        f'{self.unrolls_per_item} unrolls, and each replay shard holds at least one; make it at least '
        f'{self._least_size}.'
      )
