"""How nodes learn. Imports no JAX: graphs are built with this."""

from __future__ import annotations

import dataclasses

from agents.seeding import Seed


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
  """Options of a node that learns from replay.

  Attributes:
    name: of the node, such as 'learner/0'.
    devices: learner devices, as indices into `jax.local_devices()`.
    batch_size: unrolls in a learner batch, of each replica.
    num_steps: actor_steps, of all replicas, after which training ends.
    run_dir: where checkpoints and the final parameters go. Training resumes from its newest checkpoint.
    checkpoint_period: seconds between checkpoints; 0 for none.
    checkpoints_kept: how many of them to keep.
    audit_dir: where every unroll is recorded; '' for nowhere. See `rundir.audit`.
    seed: of the initial parameters; the same in all replicas.
    one_core: whether the Python threads share a core, where the devices are CPUs.
    replica: index of this replica; the first writes checkpoints and parameters.
    num_replicas: whose learners do every update together.
  """

  name: str
  devices: tuple[int, ...]
  batch_size: int
  num_steps: int
  run_dir: str
  checkpoint_period: float
  checkpoints_kept: int
  audit_dir: str
  seed: Seed
  one_core: bool = False
  replica: int = 0
  num_replicas: int = 1


@dataclasses.dataclass(frozen=True)
class CompiledLoopOptions:
  """Options of Anakin's node.

  Attributes:
    num_envs: environments, over all devices.
    num_devices: how many of the local devices to use; 0 for all.
    updates_per_call: learner steps in one call of the loop.
    num_steps: actor_steps after which training ends, at the end of a call.
    run_dir: where checkpoints and the final parameters go. Training resumes from its newest checkpoint.
    checkpoint_period: seconds between checkpoints; 0 for none.
    checkpoints_kept: how many of them to keep.
    seed: of everything random.
  """

  num_envs: int
  num_devices: int
  updates_per_call: int
  num_steps: int
  run_dir: str
  checkpoint_period: float
  checkpoints_kept: int
  seed: Seed
