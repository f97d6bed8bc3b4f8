"""The config of programs with actors, replay and a learner."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from nodes.inference.options import ActingOptions
from nodes.learning.options import LearningOptions
from nodes.unrolls.options import UnrollOptions, UnrollSinks
from programs.options.common import CommonConfig, Expected
from programs.options.replay import Playing, ReplayOptions

C = TypeVar('C', bound='ActorsConfig')


@dataclasses.dataclass(frozen=True)
class ActorsConfig(CommonConfig):
  """What programs with actors, replay and a learner have, for central and local inference alike.

  Attributes:
    acting: the actors.
    replay: one of the kinds of replay: a queue, prioritized, and so on.
    learning: the learner.
    unrolls: what is recorded of unrolls.
  """

  acting: ActingOptions = ActingOptions()
  replay: ReplayOptions = ReplayOptions()
  learning: LearningOptions = LearningOptions()
  unrolls: UnrollOptions = UnrollOptions()

  @property
  def num_replicas(self) -> int:
    """Replicas, each with its replay and actors."""
    return 1

  @property
  def learner_batch(self) -> tuple[str, int]:
    """The table that learner batches come from, and their unrolls."""
    parts = self.replay.batch_parts
    return parts[0].table, sum(part.unrolls for part in parts)

  @property
  def audit_dir(self) -> str:
    """The directory in which every unroll is recorded; '' for no recording."""
    return self.unrolls.audit_dir(self.run.run_dir)

  @property
  def unrolls_per_item(self) -> int:
    """Unrolls in an item of replay."""
    return self.replay.unrolls_per_item(self.acting.env_group_size)

  @property
  def sinks(self) -> UnrollSinks:
    """Where nodes that infer for actors write the unrolls."""
    return UnrollSinks(
      tables=self.replay.written_tables,
      unrolls_per_item=self.unrolls_per_item,
      audit_dir=self.audit_dir,
      recording=self.unrolls.recording(self.run.run_dir),
    )

  @property
  def playing(self) -> Playing | None:
    """What the actors play; None without an agent, whose unrolls they are."""
    if self.agent is None:
      return None
    return Playing(
      self.run.num_steps,
      self.acting.num_environments,
      self.num_replicas,
      self.agent.unroll_length,
      self.agent.unroll_rows,
    )

  def expected(self) -> Expected | None:
    """Returns what num_steps amount to; None if the options do not say so."""
    playing = self.playing
    return None if playing is None else self.replay.expected(playing)

  def check_start(self, first_batch: int) -> None:
    """Raises ValueError, one sentence, if a run ends before it has learned anything."""
    self.replay.check_start(self.run.num_steps, first_batch)

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    replay = self.replay.resolve(self.acting.env_group_size)
    return dataclasses.replace(super().resolve(), replay=replay)

  def _check(self) -> None:
    size, devices = self.replay.batch_size, self.learning.learner_devices
    if size % len(devices):
      raise ValueError(
        f'--batch_size={size} does not divide over the {len(devices)} devices of --learner_devices; '
        'make it a multiple of their number.'
      )
    if size % self.replay.num_replay_shards:
      raise ValueError(
        f'--batch_size={size} does not divide over --num_replay_shards='
        f'{self.replay.num_replay_shards}; make it a multiple.'
      )
    self.replay.check_items(self.acting.env_group_size)
    if self.agent is not None:
      self.agent.check_batch('batch_size', size, len(devices), 'learner device(s)')
