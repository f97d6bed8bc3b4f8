"""How nodes answer actors. Imports no JAX: graphs are built with this."""

from __future__ import annotations

import dataclasses

from agents.seeding import Seed


@dataclasses.dataclass(frozen=True)
class ServingOptions:
  """Options of a node that answers actors.

  Attributes:
    devices: actor devices, as indices into `jax.local_devices()`.
    batch_size: environments in an inference batch at most.
    timeout_ms: how long a request may wait for a fuller batch.
    one_core: whether the Python threads share a core, where the devices are CPUs.
    num_environments: training environments of the whole program.
    audit_dir: where every unroll is recorded; '' for nowhere. See `rundir.audit`.
    seed: of action sampling; the node adds its replica and incarnation.
  """

  devices: tuple[int, ...]
  batch_size: int
  timeout_ms: float
  one_core: bool
  num_environments: int
  audit_dir: str
  seed: Seed
