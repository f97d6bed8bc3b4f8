"""Options of nodes that serve actors. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses

from agents.seeding import Seed
from nodes.unrolls.table_names import UNROLLS
from rundir.recorded_unrolls import RecordingOptions


@dataclasses.dataclass(frozen=True)
class ServingOptions:
  """Options of a node that serves actors.

  Attributes:
    devices: actor devices, as indices into `jax.local_devices()`.
    batch_size: maximum number of environments in an inference batch.
    timeout_ms: maximum time that a request waits for a fuller batch.
    one_core: whether the Python threads share a core; applies only to CPU devices.
    num_environments: training environments of the whole program.
    audit_dir: directory of unroll records; '' for none. See `rundir.audit`.
    seed: of action sampling; the node adds its replica and restart count.
    unrolls_per_item: unrolls in an item of replay.
    tables: the tables that each unroll is written to.
    recording: where each unroll is recorded; None for nowhere.
    threads: threads that serve batches in turn; 0: see `server.num_threads`.
    shared_memory: whether actors of the node's machine may send large arrays in shared memory.
  """

  devices: tuple[int, ...]
  batch_size: int
  timeout_ms: float
  one_core: bool
  num_environments: int
  audit_dir: str
  seed: Seed
  unrolls_per_item: int = 1
  tables: tuple[str, ...] = (UNROLLS,)
  recording: RecordingOptions | None = None
  threads: int = 0
  shared_memory: bool = True
