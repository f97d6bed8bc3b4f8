"""Options of programs with prioritized replay."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from agents.options import option
from programs.options.actors import ActorsConfig

C = TypeVar('C', bound='PrioritizedConfig')


@dataclasses.dataclass(frozen=True)
class PrioritizedConfig(ActorsConfig):
  """Options of prioritized replay at a fixed ratio of samples to inserts."""

  replay_size: int = option(
    100_000, 'capacity of the replay of a replica, in unrolls, over its shards'
  )
  min_replay_size: int = option(
    5_000,
    'unrolls in the replay of a replica before learning starts, over its shards',
    at_least=1,
  )
  samples_per_insert: float = option(
    0.75,
    "average number of times that an unroll is sampled; SEED's script: 0.75, its default: 1.5",
    above=0,
    at_most=1e6,
  )
  samples_per_insert_error: float = option(
    0.0,
    'deviation from that ratio, in samples per shard, at which actors or learner wait; '
    '0: a tenth of min_replay_size times samples_per_insert, at least twice a batch',
    at_most=1e30,
  )
  replay_checkpoint_period: float = option(
    600.0,
    'seconds between replay checkpoints, during which replay blocks; 0: none',
    at_least=0,
  )
  priority_exponent: float = option(
    0.9,
    'exponent of priorities; unrolls are sampled in proportion to priority to this power',
    at_least=0,
  )

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    config = super().resolve()
    shards = self.num_replay_shards
    tenth = 0.1 * self.samples_per_insert * self.min_replay_size / shards
    least = 2.0 * max(self.batch_size / shards, 1.0, self.samples_per_insert)
    return dataclasses.replace(
      config, samples_per_insert_error=self.samples_per_insert_error or max(tenth, least)
    )

  def _check(self) -> None:
    shards = self.num_replay_shards
    if self.min_replay_size < shards:
      raise ValueError(
        f'--min_replay_size={self.min_replay_size} is below 1 for each of the {shards} shards of '
        '--num_replay_shards; make it larger.'
      )
    if self.replay_size < self.min_replay_size:
      raise ValueError(
        f'--replay_size={self.replay_size} is smaller than --min_replay_size='
        f'{self.min_replay_size}: learning would never start; make it at least as large.'
      )
    least = max(1.0, self.samples_per_insert)
    if self.samples_per_insert_error < least:
      raise ValueError(
        f'--samples_per_insert_error={self.samples_per_insert_error} is below {least}, the larger '
        'of 1 and --samples_per_insert: actors and learner could deadlock; '
        'make it larger, or 0 to have it chosen.'
      )
