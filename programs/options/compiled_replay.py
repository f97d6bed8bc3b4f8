"""Options of Anakin's loop with replay."""

from __future__ import annotations

import dataclasses

from agents.anakin.limits import RingSizes
from agents.options import with_default
from programs.options.actors import ActorsConfig
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.prioritized import PrioritizedConfig


@dataclasses.dataclass(frozen=True)
class CompiledReplayConfig(CompiledLoopConfig):
  """Options of programs that compile prioritized replay into the function as well.

  `num_envs` new unrolls and `updates_per_unroll` learner steps alternate, so the ratio of samples to
  inserts is exact.
  """

  num_envs: int = with_default(CompiledLoopConfig, 'num_envs', 32)
  batch_size: int = with_default(ActorsConfig, 'batch_size', 64)
  num_replay_shards: int = with_default(ActorsConfig, 'num_replay_shards', 8)
  replay_size: int = with_default(PrioritizedConfig, 'replay_size', 10_000)
  min_replay_size: int = with_default(PrioritizedConfig, 'min_replay_size', 500)
  samples_per_insert: float = with_default(PrioritizedConfig, 'samples_per_insert', 4.0)
  priority_exponent: float = with_default(PrioritizedConfig, 'priority_exponent', 0.9)

  @property
  def updates_per_unroll(self) -> int:
    """Learner steps after each new unroll of every environment; at least 1, also for wrong options."""
    return max(1, round(self.samples_per_insert * self.num_envs / self.batch_size))

  @property
  def rings(self) -> RingSizes:
    """The replay; the sizes are rounded to whole unrolls of every environment."""
    return RingSizes(
      num_rings=self.num_replay_shards,
      slots=self.replay_size // self.num_envs,
      min_slots=-(-self.min_replay_size // self.num_envs),
      batch_size=self.batch_size,
      updates_per_unroll=self.updates_per_unroll,
      priority_exponent=self.priority_exponent,
    )

  def _check(self) -> None:
    updates = self.samples_per_insert * self.num_envs / self.batch_size
    if updates < 1 or abs(updates - round(updates)) > 1e-6:
      raise ValueError(
        f'--samples_per_insert={self.samples_per_insert} of --num_envs={self.num_envs} new unrolls are '
        f'{updates:g} batches of --batch_size={self.batch_size}; make them a whole number, at least 1.'
      )
    self.rings.check(self.num_envs, self.known_devices, self.updates_per_call)
    if self.rings.slots < self.rings.min_slots:
      raise ValueError(
        f'--replay_size={self.replay_size} is smaller than --min_replay_size={self.min_replay_size}, in '
        f'whole unrolls of each of --num_envs={self.num_envs}: learning would never start; make it '
        'larger.'
      )
