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
    0, 'capacity of the replay queues of a replica, in unrolls, over its shards; 0: twice the batch'
  )

  @property
  def unrolls_per_item(self) -> int:
    """Unrolls in an item of the queue: as many as divide an environment group and a shard's batch."""
    return math.gcd(self.env_group_size, self.batch_size // self.num_replay_shards)

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    config = super().resolve()
    return dataclasses.replace(config, queue_size=self.queue_size or 2 * self.batch_size)

  def _check(self) -> None:
    if self.queue_size < self.batch_size:
      raise ValueError(
        f'--queue_size={self.queue_size} is smaller than --batch_size={self.batch_size}: the queue '
        'could never hold a batch; make it at least as large.'
      )
