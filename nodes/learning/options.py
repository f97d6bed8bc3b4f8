"""Options of nodes that learn. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses

from agents.options import CheckedOptions, option, require_devices
from agents.seeding import Seed
from nodes.runtime.options import RunOptions
from nodes.unrolls.online_share import OnlineShare
from nodes.unrolls.table_names import BatchPart


@dataclasses.dataclass(frozen=True)
class LearningOptions(CheckedOptions):
  """The learner of a replica, and how often others fetch its parameters."""

  learner_devices: tuple[int, ...] = option((0,), 'local devices that learn')
  update_period: float = option(
    0.01,
    'seconds between parameter fetches of a node that infers, or relabels, outside the learner process; '
    'longer if many nodes fetch',
    above=0,
    at_most=3600.0,
  )

  def _check(self) -> None:
    require_devices('learner_devices', self.learner_devices)


@dataclasses.dataclass(frozen=True)
class LoopOptions(CheckedOptions):
  """Anakin's loop: environment, acting and learning, compiled into one function."""

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

  num_replicas = 1  # Processes whose devices the loop has; an option where there may be several.

  @property
  def known_devices(self) -> int:
    """Devices that divisibility is checked for before the start: 1 for all local ones of a process."""
    return self.num_replicas * max(self.num_devices, 1)

  def _check(self) -> None:
    if self.num_envs % self.known_devices:
      over = [f'--num_replicas={self.num_replicas} hosts'] if self.num_replicas > 1 else []
      over += [f'--num_devices={self.num_devices}'] if self.num_devices else []
      raise ValueError(
        f'--num_envs={self.num_envs} does not divide over {" of ".join(over)}; make it a multiple of '
        f'{self.known_devices}.'
      )


@dataclasses.dataclass(frozen=True)
class ReplicatedLoopOptions(LoopOptions):
  """The loop over the devices of one or several hosts."""

  num_replicas: int = option(
    1,
    'processes, each on a host of its own, over whose devices one compiled loop is spread; numbers of '
    'environments and sizes of batches and replay are of all together',
    at_least=1,
  )


@dataclasses.dataclass(frozen=True)
class PeerLoopOptions(LoopOptions):
  """The loop of each peer, between two rounds of gossip."""

  num_envs: int = option(
    16,
    'environments of each peer, over all of its devices; a learner batch is one unroll of each; '
    'GALA: 16',
    at_least=1,
  )
  updates_per_call: int = option(
    1,
    'learner steps of a peer between two rounds of gossip; reports, checkpoints and stops happen there '
    'too; GALA: 1',
    at_least=1,
  )


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
  """A learner from replay: the user's options that it reads, and what the graph decides for it.

  Attributes:
    name: of the node, such as 'learner/0'.
    run: when training ends, and what it saves. `num_steps` counts all replicas.
    learning: the learner devices, as indices into `jax.local_devices()`.
    batch_parts: the unrolls of each replica's part of a learner batch, by table.
    seed: of the initial parameters; the same in all replicas.
    audit_dir: directory of unroll records; '' for none. See `rundir.audit`.
    one_core: whether the Python threads share a core; applies only to CPU devices.
    replica: index of this replica; the first writes checkpoints and parameters.
    num_replicas: number of replicas; their learners do every update together.
    unrolls_per_item: unrolls in an item of replay.
    max_in_flight: maximum number of unrolls in transfer beyond a batch; None: a batch.
    steps_per_update: the actor steps that an update counts as, where its data were recorded before; 0
      where actors count theirs.
    learner: index of this learner, in a run with several independent learners; see `rundir.learners`.
  """

  name: str
  run: RunOptions
  learning: LearningOptions
  batch_parts: tuple[BatchPart, ...]
  seed: Seed
  audit_dir: str = ''
  one_core: bool = False
  replica: int = 0
  num_replicas: int = 1
  unrolls_per_item: int = 1
  max_in_flight: int | None = None
  steps_per_update: int = 0
  learner: int = 0

  @property
  def batch_size(self) -> int:
    """Unrolls in each replica's part of a learner batch."""
    return sum(part.unrolls for part in self.batch_parts)

  @property
  def learner_dir(self) -> str:
    """The directory of the learner's checkpoints and final parameters."""
    return self.run.learner_dir(self.learner)


@dataclasses.dataclass(frozen=True)
class TransformOptions:
  """Options of a node that changes unrolls between two tables of replay.

  Attributes:
    name: of the node, such as 'relabeller/0'.
    sources: the tables that it reads, and the unrolls that it reads at a time from each, a multiple of
      the number of replay servers. With `online_share` they are online and offline data, and a batch has
      as many unrolls as either of them.
    target: the table that it writes.
    update_period: seconds between fetches of the learner's parameters.
    audit_dir: directory of unroll records; '' for none. See `rundir.audit`.
    seed: of all random numbers; each node has a different one.
    online_share: share of online data in its batches; None if it reads no offline data.
  """

  name: str
  sources: tuple[BatchPart, ...]
  target: str
  update_period: float
  seed: Seed
  audit_dir: str = ''
  online_share: OnlineShare | None = None

  @property
  def batch_size(self) -> int:
    """Unrolls that it changes at a time."""
    if self.online_share is not None:
      return self.sources[0].unrolls
    return sum(source.unrolls for source in self.sources)


@dataclasses.dataclass(frozen=True)
class LoadingOptions:
  """What a replay loader loads, as the graph decides it.

  Attributes:
    name: of the node, such as 'replay_loader/0'.
    run_dirs: directories of the runs that have recorded.
    recorded: transitions that they had recorded when the program was built.
    wanted: transitions to load, evenly spaced among these.
    audit_dir: directory of unroll records; '' for none. See `rundir.audit`.
  """

  name: str
  run_dirs: tuple[str, ...]
  recorded: int
  wanted: int
  audit_dir: str
