"""Several host units whose learners are one JAX job."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.types import Nest
from nodes.runtime import lifecycle


def initialize(coordinator: str, replica: int, num_replicas: int) -> None:
  """Makes this process one of the job's; waits for the others. Nothing may have used a device yet.

  Call it from the main thread.

  Args:
    coordinator: host:port; the first replica listens there.
    replica: which of them this is.
    num_replicas: in the job.

  Raises:
    lifecycle.NonRetryableError: if the devices of the others cannot be seen from here.
  """
  handler = signal.getsignal(signal.SIGTERM)
  jax.distributed.initialize(
    coordinator, num_replicas, replica, cluster_detection_method='deactivate'
  )
  signal.signal(signal.SIGTERM, handler)  # JAX has put its own in the place of the node's.
  if jax.process_count() != num_replicas:
    raise lifecycle.NonRetryableError(
      f'--num_replicas={num_replicas}, but the devices of this host form a system with those of '
      f'{jax.process_count()} host(s) only; run every replica on a host of one such system.'
    )


def warm_up_collectives(devices: Sequence[jax.Device]) -> None:
  """Does an all-reduce over devices of all replicas.

  On CPUs the first one fails if a replica comes 30 seconds after another; the later ones are patient.
  """
  mesh = Mesh(np.asarray(devices), ('data',))
  sharded = NamedSharding(mesh, PartitionSpec('data'))
  ones = jax.make_array_from_callback((len(devices),), sharded, lambda i: np.ones(1, np.float32))
  total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(ones)
  assert int(total) == len(devices)


def broadcast(tree: Nest, replica: int) -> Nest:
  """Returns what the first replica passes, as NumPy arrays; all replicas call it.

  Args:
    tree: arrays, of the same structure, shapes and dtypes everywhere.
    replica: which of them this is.
  """
  return multihost_utils.broadcast_one_to_all(tree, is_source=replica == 0)


def local_devices(
  indices: Sequence[int], flag: str, process: int | None = None
) -> list[jax.Device]:
  """Returns devices of a process by their place among them.

  Args:
    indices: from 0.
    flag: that names them, for the error.
    process: JAX's index of it; None for this one.

  Raises:
    lifecycle.NonRetryableError: if it has fewer.
  """
  devices = jax.local_devices(process_index=process)
  if max(indices) >= len(devices):
    raise lifecycle.NonRetryableError(
      f'{flag}={",".join(map(str, indices))} asks for device {max(indices)}, but this process sees '
      f'{len(devices)} device(s), numbered from 0.'
    )
  return [devices[i] for i in indices]


def devices_of_all(indices: Sequence[int], flag: str) -> list[jax.Device]:
  """Returns those devices of every process of the job, in the same order everywhere."""
  processes = range(jax.process_count())
  return [device for p in processes for device in local_devices(indices, flag, p)]
