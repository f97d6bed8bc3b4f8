"""Prioritized replay, on servers or in a compiled loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from agents.options import option
from nodes.unrolls import tables
from programs.options.common import Expected
from programs.options.replay import Playing, ReplayOptions

P = TypeVar('P', bound='PrioritizedOptions')
_BATCHES = 10  # Of relabelled unrolls, in their table.


@dataclasses.dataclass(frozen=True)
class SampledOptions(ReplayOptions):
  """Replay that is sampled by priority, at a fixed ratio of samples to inserts."""

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
  priority_exponent: float = option(
    0.9,
    'exponent of priorities; unrolls are sampled in proportion to priority to this power',
    at_least=0,
  )

  def check_start(self, num_steps: int, first_batch: int) -> None:
    """Raises ValueError, one sentence, if a run ends before replay is filled."""
    if first_batch > num_steps:
      raise ValueError(
        f'--num_steps={num_steps} ends before replay holds --min_replay_size={self.min_replay_size} '
        f'unrolls, after about {first_batch} actor_steps, so nothing would be learned; raise '
        '--num_steps or lower --min_replay_size.'
      )


@dataclasses.dataclass(frozen=True)
class PrioritizedOptions(SampledOptions):
  """Prioritized replay, whose servers hold back actors or learner to keep to the ratio."""

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

  @property
  def checkpoint_period(self) -> float:
    """Seconds between checkpoints of replay; 0 for none."""
    return self.replay_checkpoint_period

  def make_tables(self, env_group_size: int) -> Sequence[tables.Table]:
    """Returns the prioritized table of each replay server."""
    del env_group_size
    return self._prioritized()

  def resolve(self: P, env_group_size: int) -> P:
    """Returns the options with every 'choose for me' replaced by the choice."""
    del env_group_size
    shards = self.num_replay_shards
    tenth = 0.1 * self.samples_per_insert * self.min_replay_size / shards
    least = 2.0 * max(self.batch_size / shards, 1.0, self.samples_per_insert)
    error = self.samples_per_insert_error or max(tenth, least)
    return dataclasses.replace(self, samples_per_insert_error=error)

  def expected(self, playing: Playing) -> Expected | None:
    """Returns what a run amounts to.

    Each table's rate limiter keeps its samples within samples_per_insert_error of
    samples_per_insert * (inserts - min_size).
    """
    first = playing.steps_until(self.min_replay_size)
    inserts = playing.unrolls(playing.num_steps)
    samples = self.samples_per_insert * (inserts - self.min_replay_size)
    error = self.samples_per_insert_error * self.num_replay_shards
    starts = first <= playing.num_steps
    updates = max(0, int(samples / self.batch_size))
    most = max(0, int((samples + error) / self.batch_size)) if starts else 0
    return Expected(updates, most, first)

  def _prioritized(self, share: float = 1.0) -> list[tables.Table]:
    """Returns the table that the learner samples by priority.

    Args:
      share: of the unrolls of a batch that come from this table. The ratio of samples to inserts is
        times this share, so the number of updates is the same as without another table.
    """
    return tables.prioritized_table(
      max_size=self.replay_size // self.num_replay_shards,
      min_size=self.min_replay_size // self.num_replay_shards,
      samples_per_insert=self.samples_per_insert * share,
      error_buffer=self.samples_per_insert_error * share,
      priority_exponent=self.priority_exponent,
    )

  def _originals(
    self, samples_per_insert: float = 0.0, error_buffer: float = 0.0
  ) -> list[tables.Table]:
    """Returns the table that relabellers read."""
    return tables.uniform_table(
      self.replay_size // self.num_replay_shards,
      self.min_replay_size // self.num_replay_shards,
      samples_per_insert,
      error_buffer,
    )

  def _copies(self, size: int, each_once: bool = False) -> list[tables.Table]:
    """Returns the table that relabellers write, of `size` unrolls over the shards."""
    return tables.relabelled_table(
      max_size=size // self.num_replay_shards,
      min_size=self.relabelled // self.num_replay_shards,
      priority_exponent=self.priority_exponent,
      each_once=each_once,
    )

  def _size_of_copies(self, given: int) -> int:
    """Returns the capacity of that table over the shards of a replica, as given, or chosen for 0."""
    return given or _BATCHES * self.relabelled

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
