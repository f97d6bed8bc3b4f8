"""Options of Anakin's loop."""

from __future__ import annotations

import dataclasses

from agents.anakin.limits import RingSizes, check_rows
from agents.options import option
from agents.seeding import Seed
from programs.options.common import CommonConfig


@dataclasses.dataclass(frozen=True)
class CompiledLoopConfig(CommonConfig):
  """Options of programs that compile environment, acting and learning into one function."""

  num_envs: int = option(
    64,
    'environments, over all devices; without replay, a learner batch is one unroll of each',
    at_least=1,
  )
  num_devices: int = option(
    0, 'local devices that the environments are sharded over; 0: all local devices', at_least=0
  )
  updates_per_call: int = option(
    8,
    'learner steps per call of the compiled loop; reports, checkpoints and stops happen between calls',
    at_least=1,
  )

  @property
  def known_devices(self) -> int:
    """Devices that divisibility is checked for before the start: 1 for all local ones."""
    return max(self.num_devices, 1)

  @property
  def updates_per_unroll(self) -> int:
    """Learner steps after each new unroll of every environment."""
    return 1

  @property
  def num_loops(self) -> int:
    """Number of compiled loops that share num_steps."""
    return 1

  @property
  def rings(self) -> RingSizes | None:
    """The replay on the devices; None where a learner step uses the new unrolls only."""
    return None

  @property
  def root_seed(self) -> Seed:
    """The root of all seeds. It ignores resumes: a resumed run equals the uninterrupted run."""
    return Seed(self.seed)

  def _check(self) -> None:
    if self.video_period:
      raise ValueError(
        f'--video_period={self.video_period:g} is not for Anakin, whose environments are inside a '
        'compiled function; leave it out, and record with evaluate.py --video.'
      )
    if self.num_envs % self.known_devices:
      raise ValueError(
        f'--num_envs={self.num_envs} does not divide over --num_devices={self.num_devices}; make it '
        'a multiple.'
      )
    check_rows(
      self.num_envs,
      getattr(self, 'unroll_length', 1),
      self.updates_per_call,
      self.updates_per_unroll,
    )
