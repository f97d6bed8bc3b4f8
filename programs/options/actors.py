"""Options of programs with actors, replay and a learner."""

from __future__ import annotations

import dataclasses

from agents.options import option
from nodes.unrolls.table_names import UNROLLS, BatchPart
from programs.options.common import CommonConfig
from rundir.recorded_unrolls import RecordingOptions


@dataclasses.dataclass(frozen=True)
class ActorsConfig(CommonConfig):
  """Options of programs with actors, replay and a learner, for central and local inference alike."""

  num_actors: int = option(2, 'actor processes of each replica', at_most=65_536, at_least=1)
  envs_per_actor: int = option(32, 'environments in each actor process', at_least=1)
  learner_devices: tuple[int, ...] = option((0,), 'local devices that learn')
  batch_size: int = option(
    16,
    'unrolls that each replica adds to a learner batch, split over its learner devices; an update uses '
    'num_replicas times as many',
    at_least=1,
  )
  update_period: float = option(
    0.01,
    'seconds between parameter fetches of a node that infers, or relabels, outside the learner process',
    above=0,
    at_most=3600.0,
  )
  num_replay_shards: int = option(
    1,
    'parts of the replay of each replica, filled and sampled evenly: servers, or rings under Anakin',
    at_least=1,
  )
  audit: bool = option(False, 'record every unroll that is produced and trained on, for drills')
  record_unrolls: bool = option(
    False,
    'write every unroll that actors produce into unrolls/ of the run directory, for --offline_data',
  )
  record_gigabytes: float = option(
    10.0,
    'size of these files, in units of 10**9 bytes, at which --record_unrolls ends; training continues',
    at_least=0,
    at_most=1e6,
  )

  @property
  def env_group_size(self) -> int:
    """Environments whose unrolls are completed and written together."""
    return self.envs_per_actor

  @property
  def unrolls_per_item(self) -> int:
    """Unrolls in an item of replay: one, so that each has a priority of its own."""
    return 1

  @property
  def max_in_flight(self) -> int | None:
    """Unrolls in transfer to a learner beyond its batch; None: a batch."""
    return None

  @property
  def tables(self) -> tuple[str, ...]:
    """Tables of replay that each new unroll is written to."""
    return (UNROLLS,)

  @property
  def batch_parts(self) -> tuple[BatchPart, ...]:
    """The unrolls that each replica adds to a learner batch, by table of replay."""
    return (BatchPart(UNROLLS, self.batch_size),)

  @property
  def audit_dir(self) -> str:
    """The directory in which every unroll is recorded; '' for no recording."""
    return self.run_dir if self.audit else ''

  @property
  def recording(self) -> RecordingOptions | None:
    """Where unrolls are recorded; None for nowhere."""
    if not self.record_unrolls:
      return None
    return RecordingOptions(self.run_dir, int(self.record_gigabytes * 1e9))

  @property
  def actors_use_run_dir(self) -> bool:
    """Whether nodes that write unrolls write to the run directory as well."""
    return self.audit or self.record_unrolls

  def _check(self) -> None:
    self._require_devices('learner_devices')
    if not self.record_unrolls:
      self._require_default('--record_unrolls', 'record_gigabytes')
    if self.batch_size % len(self.learner_devices):
      raise ValueError(
        f'--batch_size={self.batch_size} does not divide over the {len(self.learner_devices)} '
        'devices of --learner_devices; make it a multiple of their number.'
      )
    if self.batch_size % self.num_replay_shards:
      raise ValueError(
        f'--batch_size={self.batch_size} does not divide over --num_replay_shards='
        f'{self.num_replay_shards}; make it a multiple.'
      )
