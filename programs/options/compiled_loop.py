"""The config of programs that compile environment, acting and learning into one function."""

from __future__ import annotations

import dataclasses
import math

from agents.anakin.limits import RingSizes, check_rows
from agents.seeding import Seed
from nodes.learning.options import LoopOptions
from nodes.unrolls.table_names import UNROLLS
from programs.options.common import CommonConfig, Expected
from programs.options.compiled_replay import NoReplay, RingOptions


@dataclasses.dataclass(frozen=True)
class CompiledLoopConfig(CommonConfig):
  """What programs with Anakin's loop have.

  Attributes:
    loop: the loop.
    replay: inside the loop, if the agent learns from one.
  """

  loop: LoopOptions = LoopOptions()
  replay: RingOptions | NoReplay = NoReplay()

  @property
  def root_seed(self) -> Seed:
    """The root of all seeds. It ignores resumes: a resumed run equals the uninterrupted run."""
    return Seed(self.run.seed)

  @property
  def rings(self) -> RingSizes | None:
    """The replay on the devices; None where a learner step uses the new unrolls only."""
    return self.replay.rings(self.loop.num_envs)

  @property
  def forms_one_job(self) -> bool:
    """Whether the loop is spread over several processes, which are one JAX job."""
    return self.loop.num_replicas > 1

  @property
  def learner_batch(self) -> tuple[str, int]:
    """The table that learner batches come from, and their unrolls."""
    rings = self.rings
    return UNROLLS, rings.batch_size if rings else self.loop.num_envs

  def expected(self) -> Expected | None:
    """Returns what num_steps amount to; None without an agent."""
    if self.agent is None:
      return None
    each = self.replay.updates_per_unroll(self.loop.num_envs)
    batch = self.loop.num_envs * self.agent.unroll_length * self.num_learners
    rows_per_call = batch * (self.loop.updates_per_call // each)
    calls = math.ceil(self.run.num_steps / max(rows_per_call, 1))
    filling = self._unrolls_until_learning()
    updates = max(0, calls * self.loop.updates_per_call - (filling - 1) * each)
    return Expected(updates, updates, batch * filling)

  def check_start(self, first_batch: int) -> None:
    """Raises ValueError, one sentence, if a run ends before learning starts."""
    self.replay.check_start(self.run.num_steps, first_batch)

  def _unrolls_until_learning(self) -> int:
    """Returns the unrolls of each environment up to the first that is learned from."""
    rings = self.rings
    if rings is None:
      return 1
    incomplete = math.ceil((self.agent.unroll_rows - 1) / self.agent.unroll_length) - 1
    return incomplete + rings.min_slots

  def _check(self) -> None:
    if self.evaluation.video_period:
      raise ValueError(
        f'--video_period={self.evaluation.video_period:g} is not for Anakin, whose environments are '
        'inside a compiled function; leave it out, and record with evaluate.py --video.'
      )
    self.replay.check_loop(self.loop)
    updates = self.replay.updates_per_unroll(self.loop.num_envs)
    length = self.agent.unroll_length if self.agent is not None else 1
    check_rows(self.loop.num_envs, length, self.loop.updates_per_call, updates)
    if self.agent is not None:
      flag, unrolls = 'num_envs', self.loop.num_envs
      if rings := self.rings:
        flag, unrolls = 'batch_size', rings.batch_size
      self.agent.check_batch(flag, unrolls, self.loop.known_devices, 'device(s)')
