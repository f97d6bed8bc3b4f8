"""How the learner of one replica takes part in the updates of all replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.types import Nest
from nodes.runtime import activity


class ReplicaSync:
  """The mesh of all replicas' learner devices, and one replica's part of what is on it.

  With one replica, everything is local and nothing is copied or waited for in a thread.

  Attributes:
    replicated: places a copy on every device.
    sharded: places rows on the devices, along the first axis.
    waiting: whether this replica waits for another one to finish an update.
  """

  def __init__(self, devices: Sequence[jax.Device]):
    """Initialises the mesh.

    Args:
      devices: the learner devices of all replicas, in the same order everywhere.
    """
    self._mesh = Mesh(np.asarray(devices), ('data',))
    self.replicated = NamedSharding(self._mesh, PartitionSpec())
    self.sharded = NamedSharding(self._mesh, PartitionSpec('data'))
    self.waiting = False
    # A compiled call takes many small arrays to the devices at a fraction of device_put's cost. What it
    # has taken there is donated, so that its result is not a copy.
    self._put = jax.jit(
      lambda rows: rows, in_shardings=self.sharded, out_shardings=self.sharded, donate_argnums=0
    )
    self._waiter = futures.ThreadPoolExecutor(1)
    self._contributed = 0

  def to_global(self, rows: Nest) -> Nest:
    """Returns global arrays over all replicas.

    Args:
      rows: this replica's part: NumPy arrays, or global arrays of the only replica, which are returned.
    """
    if jax.process_count() == 1:
      is_there = isinstance(jax.tree.leaves(rows)[0], jax.Array)
      return rows if is_there else self._put(rows)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(self.sharded, x), rows)

  def to_local(self, arrays: Nest, sharding: NamedSharding) -> Nest:
    """Returns this replica's part of global arrays, without a copy."""
    if jax.process_count() == 1:
      return arrays
    return multihost_utils.global_array_to_host_local_array(arrays, self._mesh, sharding.spec)

  def num_rows(self, batch_size: int) -> int:
    """Returns the rows of a global batch of which each replica contributes `batch_size`."""
    return jax.process_count() * batch_size

  def contribute(self, total: int) -> jax.Array:
    """Returns what this replica adds to a count; the sum over all replicas is the count's increase.

    Args:
      total: this replica's count so far. What an earlier call contributed is subtracted.

    Returns:
      int32 `[devices of all replicas]`.
    """
    new = np.zeros(len(self.sharded.addressable_devices), np.int32)
    # After a restart the sum of all replicas may exceed an int32, and several calls contribute it.
    new[0] = min(total - self._contributed, (1 << 30) // jax.process_count())
    self._contributed += int(new[0])
    return self.to_global(new)

  def contribution_spec(self) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of what `contribute` returns."""
    return jax.ShapeDtypeStruct((self.sharded.num_devices,), np.int32)

  def wait(self, result: Any, check: Callable[[], None]) -> None:
    """Waits for an update, possibly long if another replica has not joined it yet.

    Args:
      result: an array that the update returns; True before the first update.
      check: called every 0.2 s while another replica may be late; may raise to end the wait.
    """
    if jax.process_count() == 1 or result is True:
      jax.block_until_ready(result)
    elif not result.is_ready():
      ended = self._waiter.submit(jax.block_until_ready, result)
      while not futures.wait([ended], timeout=0.2).done:
        self.waiting = True
        activity.mark(activity.WAITING_FOR_REPLICAS)
        check()
      self.waiting = False
      activity.mark(activity.UPDATING)
      ended.result()
