"""Replicas: processes whose learners, or compiled loops, form one JAX job."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.types import Nest
from courier import tls
from nodes.runtime import lifecycle

# Begins the URI that `launchers.certificate` puts into the certificate of a run.
_URI_PREFIX = 'launchpod://run/'
# For the last replica to start. A cluster that pulls images and adds machines provides hosts over many
# minutes; after JAX's default of five, the first ones would fail.
_START_SECONDS = 3600


def initialize(coordinator: str, replica: int, num_replicas: int) -> None:
  """Joins the JAX job and waits for the other replicas.

  The coordinator and its clients prove to each other by TLS that they are of this run, if it has a
  certificate. JAX's collectives, between the same processes, have no such protection.

  Call it from the main thread, before anything uses a device.

  Args:
    coordinator: host:port; the first replica listens there.
    replica: index of this replica.
    num_replicas: in the job.

  Raises:
    lifecycle.NonRetryableError: if this process does not see the devices of all replicas.
  """
  # The launcher's no_grpc_proxy keeps gRPC off any proxy; JAX warns of every variable with such a name.
  jax.config.update('jax_check_proxy_envs', False)
  handler = signal.getsignal(signal.SIGTERM)
  certificate = os.environ.get(tls.VARIABLE) or None
  jax.distributed.initialize(
    coordinator,
    num_replicas,
    replica,
    cluster_detection_method='deactivate',
    initialization_timeout=_START_SECONDS,
    mtls_cert_file=certificate,
    mtls_key_file=certificate,
    mtls_ca_file=certificate,
    mtls_peer_uri_prefix=_URI_PREFIX if certificate else None,
  )
  signal.signal(signal.SIGTERM, handler)  # JAX replaces the node's handler.
  if jax.process_count() != num_replicas:
    raise lifecycle.NonRetryableError(
      f'--num_replicas={num_replicas}, but the devices of this host form a system with those of '
      f'{jax.process_count()} host(s) only; run every replica on a host of one such system.'
    )


def warm_up_collectives(devices: Sequence[jax.Device]) -> None:
  """Does an all-reduce over the devices of all replicas.

  On CPUs the first all-reduce fails if a replica joins 30 seconds after another; later ones wait.
  """
  mesh = Mesh(np.asarray(devices), ('data',))
  sharded = NamedSharding(mesh, PartitionSpec('data'))
  ones = jax.make_array_from_callback((len(devices),), sharded, lambda i: np.ones(1, np.float32))
  total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(ones)
  assert int(total) == len(devices)


def broadcast(tree: Nest, replica: int) -> Nest:
  """Returns the first replica's `tree`, as NumPy arrays; all replicas call it.

  Args:
    tree: arrays of the same structure, shapes and dtypes in all replicas.
    replica: index of this replica.
  """
  return multihost_utils.broadcast_one_to_all(tree, is_source=replica == 0)


def share(total: int, replica: int, num_replicas: int) -> int:
  """Returns a replica's part of a count; the parts of all replicas add up to `total`."""
  return total // num_replicas + (replica < total % num_replicas)


def any_of(flags: Sequence[bool]) -> list[bool]:
  """Returns for each flag whether it is set in any replica; all replicas call it, and wait for all."""
  if jax.process_count() == 1:
    return list(flags)
  everybodys = multihost_utils.process_allgather(np.array(flags, np.int32))
  return [bool(flag) for flag in everybodys.any(axis=0)]


def local_devices(
  indices: Sequence[int], flag: str, process: int | None = None
) -> list[jax.Device]:
  """Returns devices of a process by index.

  Args:
    indices: into the process's local devices, from 0.
    flag: the flag that sets them, for the error.
    process: its JAX process index; None for this process.

  Raises:
    lifecycle.NonRetryableError: if an index is out of range.
  """
  devices = jax.local_devices(process_index=process)
  if max(indices) >= len(devices):
    raise lifecycle.NonRetryableError(
      f'{flag}={",".join(map(str, indices))} asks for device {max(indices)}, but this process sees '
      f'{len(devices)} device(s), numbered from 0.'
    )
  return [devices[i] for i in indices]


def devices_of_all(indices: Sequence[int], flag: str) -> list[jax.Device]:
  """Returns the devices with these indices of every process of the job, in the same order everywhere."""
  processes = range(jax.process_count())
  return [device for p in processes for device in local_devices(indices, flag, p)]
