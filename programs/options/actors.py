"""The config of programs with actors, replay and a learner."""

from __future__ import annotations

import dataclasses

from nodes.inference.options import ActingOptions
from nodes.unrolls.options import UnrollOptions, UnrollSinks
from programs.options.common import Expected
from programs.options.replay import Playing
from programs.options.replay_config import ReplayConfig


@dataclasses.dataclass(frozen=True)
class ActorsConfig(ReplayConfig):
  """What programs with actors, replay and a learner have, for central and local inference alike.

  Attributes:
    acting: the actors.
    unrolls: what is recorded of unrolls.
  """

  acting: ActingOptions = ActingOptions()
  unrolls: UnrollOptions = UnrollOptions()

  @property
  def env_group_size(self) -> int:
    """Environments of an actor that are stepped together, whose unrolls are written together."""
    return self.acting.env_group_size

  @property
  def audit_dir(self) -> str:
    """The directory in which every unroll is recorded; '' for no recording."""
    return self.unrolls.audit_dir(self.run.run_dir)

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
