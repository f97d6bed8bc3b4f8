"""Options of nodes that learn. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses

from agents.anakin.limits import RingSizes
from agents.seeding import Seed
from nodes.unrolls.online_share import OnlineShare
from nodes.unrolls.table_names import BatchPart
from rundir import learners


@dataclasses.dataclass(frozen=True)
class RunOptions:
  """When training ends, and what it saves.

  Attributes:
    num_steps: actor_steps after which training ends. All replicas count; a compiled loop ends with the
      first call that reaches the number.
    run_dir: receives checkpoints and the final parameters. Training resumes from its newest checkpoint.
    checkpoint_period: seconds between checkpoints; 0 disables them.
    checkpoints_kept: number of checkpoints to keep.
    learner: index of this learner, in a run with several independent learners; see `rundir.learners`.
  """

  num_steps: int
  run_dir: str
  checkpoint_period: float
  checkpoints_kept: int
  learner: int = 0

  @property
  def learner_dir(self) -> str:
    """The directory of the learner's checkpoints and final parameters."""
    return learners.directory(self.run_dir, self.learner)


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
  """Options of a node that learns from replay.

  Attributes:
    name: of the node, such as 'learner/0'.
    devices: learner devices, as indices into `jax.local_devices()`.
    batch_parts: the unrolls of each replica's part of a learner batch, by table.
    run: when training ends, and what it saves.
    audit_dir: directory of unroll records; '' for none. See `rundir.audit`.
    seed: of the initial parameters; the same in all replicas.
    one_core: whether the Python threads share a core; applies only to CPU devices.
    replica: index of this replica; the first writes checkpoints and parameters.
    num_replicas: number of replicas; their learners do every update together.
    unrolls_per_item: unrolls in an item of replay.
    max_in_flight: maximum number of unrolls in transfer beyond a batch; None: a batch.
  """

  name: str
  devices: tuple[int, ...]
  batch_parts: tuple[BatchPart, ...]
  run: RunOptions
  audit_dir: str
  seed: Seed
  one_core: bool = False
  replica: int = 0
  num_replicas: int = 1
  unrolls_per_item: int = 1
  max_in_flight: int | None = None

  @property
  def batch_size(self) -> int:
    """Unrolls in each replica's part of a learner batch."""
    return sum(part.unrolls for part in self.batch_parts)


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
  """Options of a replay loader.

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


@dataclasses.dataclass(frozen=True)
class CompiledLoopOptions:
  """Options of Anakin's node.

  Attributes:
    num_envs: environments, over all devices.
    num_devices: number of local devices to use; 0 for all.
    updates_per_call: learner steps in one call of the loop.
    run: when training ends, and what it saves.
    seed: of all random numbers.
    rings: the replay on the devices; None for an on-policy agent.
    name: of the node.
  """

  num_envs: int
  num_devices: int
  updates_per_call: int
  run: RunOptions
  seed: Seed
  rings: RingSizes | None = None
  name: str = 'anakin/0'
