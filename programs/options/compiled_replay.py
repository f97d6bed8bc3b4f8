"""Replay inside Anakin's loop, and none."""

from __future__ import annotations

import dataclasses

from agents.anakin.limits import RingSizes
from agents.options import CheckedOptions
from nodes.learning.options import LoopOptions
from programs.options.prioritized import SampledOptions


@dataclasses.dataclass(frozen=True)
class NoReplay(CheckedOptions):
  """No replay: a learner step uses one new unroll of every environment, and no option of its own."""

  def updates_per_unroll(self, num_envs: int) -> int:
    """Returns the learner steps after each new unroll of every environment."""
    del num_envs
    return 1

  def rings(self, num_envs: int) -> RingSizes | None:
    """Returns the replay on the devices; None without one."""
    del num_envs
    return None

  def check_loop(self, loop: LoopOptions) -> None:
    """Raises ValueError, one sentence, unless the loop and its replay fit together."""

  def check_start(self, num_steps: int, first_batch: int) -> None:
    """Raises ValueError, one sentence, if a run ends before learning starts; the first call learns."""


@dataclasses.dataclass(frozen=True)
class RingOptions(SampledOptions):
  """Prioritized replay in rings on the devices, compiled into the loop.

  `num_envs` new unrolls and `updates_per_unroll` learner steps alternate, so the ratio of samples to
  inserts is exact.
  """

  batch_size: int = 64
  num_replay_shards: int = 8
  replay_size: int = 10_000
  min_replay_size: int = 500
  samples_per_insert: float = 4.0

  def updates_per_unroll(self, num_envs: int) -> int:
    """Returns the learner steps after each new unroll of every environment.

    At least 1, also for wrong options.
    """
    return max(1, round(self.samples_per_insert * num_envs / self.batch_size))

  def rings(self, num_envs: int) -> RingSizes:
    """Returns the replay on the devices; the sizes are rounded to whole unrolls of every environment."""
    return RingSizes(
      num_rings=self.num_replay_shards,
      slots=self.replay_size // num_envs,
      min_slots=-(-self.min_replay_size // num_envs),
      batch_size=self.batch_size,
      updates_per_unroll=self.updates_per_unroll(num_envs),
      priority_exponent=self.priority_exponent,
    )

  def check_loop(self, loop: LoopOptions) -> None:
    """Raises ValueError, one sentence, unless the loop and its replay fit together."""
    updates = self.samples_per_insert * loop.num_envs / self.batch_size
    if updates < 1 or abs(updates - round(updates)) > 1e-6:
      raise ValueError(
        f'--samples_per_insert={self.samples_per_insert} of --num_envs={loop.num_envs} new unrolls are '
        f'{updates:g} batches of --batch_size={self.batch_size}; make them a whole number, at least 1.'
      )
    rings = self.rings(loop.num_envs)
    rings.check(loop.num_envs, loop.known_devices, loop.updates_per_call)
    if rings.slots < rings.min_slots:
      raise ValueError(
        f'--replay_size={self.replay_size} is smaller than --min_replay_size={self.min_replay_size}, in '
        f'whole unrolls of each of --num_envs={loop.num_envs}: learning would never start; make it '
        'larger.'
      )
