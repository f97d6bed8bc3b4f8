"""The config of programs whose learner trains from replay."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from nodes.learning.options import LearningOptions
from programs.options.common import CommonConfig
from programs.options.replay import ReplayOptions

C = TypeVar('C', bound='ReplayConfig')


@dataclasses.dataclass(frozen=True)
class ReplayConfig(CommonConfig):
  """What programs with replay and a learner have, whatever fills replay.

  Attributes:
    replay: one of the kinds of replay: a queue, prioritized, and so on.
    learning: the learner.
  """

  replay: ReplayOptions = ReplayOptions()
  learning: LearningOptions = LearningOptions()

  @property
  def num_replicas(self) -> int:
    """Replicas, each with replay of its own."""
    return 1

  @property
  def env_group_size(self) -> int:
    """Environments whose unrolls are completed and written together; 1 without actors."""
    return 1

  @property
  def learner_batch(self) -> tuple[str, int]:
    """The table that learner batches come from, and their unrolls."""
    parts = self.replay.batch_parts
    return parts[0].table, sum(part.unrolls for part in parts)

  @property
  def steps_per_update(self) -> int:
    """The actor_steps that an update counts as; 0 where actors count theirs."""
    return 0

  @property
  def audit_dir(self) -> str:
    """The directory in which every unroll is recorded; '' for no recording."""
    return ''

  @property
  def unrolls_per_item(self) -> int:
    """Unrolls in an item of replay."""
    return self.replay.unrolls_per_item(self.env_group_size)

  def check_start(self, first_batch: int) -> None:
    """Raises ValueError, one sentence, if a run ends before it has learned anything."""
    self.replay.check_start(self.run.num_steps, first_batch)

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    replay = self.replay.resolve(self.env_group_size)
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
    self.replay.check_items(self.env_group_size)
    if self.agent is not None:
      self.agent.check_batch('batch_size', size, len(devices), 'learner device(s)')
