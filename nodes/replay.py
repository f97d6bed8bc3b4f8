"""Replay through Reverb: the server, the writer and the reader. Only this module knows Reverb.

One unroll is one Reverb item with one step: its columns are the leaves of `Unroll`, by name.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import reverb
import tensorflow as tf

from agents.types import Array, Nest, Unroll
from nodes import lifecycle

TABLE = 'unrolls'


def queue_table(max_size: int) -> list[reverb.Table]:
  """Returns a FIFO table that delivers each unroll once and blocks writers while it is full.

  Args:
    max_size: unrolls that may wait.
  """
  return [reverb.Table.queue(TABLE, max_size)]


class ReplayServer:
  """A Reverb server that lives until the program stops."""

  def __init__(self, tables: Callable[[], Sequence[reverb.Table]], port: int):
    """Starts to listen.

    Args:
      tables: builds the tables, in this process.
      port: to listen on.

    Raises:
      OSError: if the port is in use. Reverb alone would share it in silence.
    """
    with socket.socket(socket.AF_INET6) as probe:
      probe.bind(('', port))
    self._server = reverb.Server(tables(), port)

  def run(self) -> None:
    """Serves until the program stops."""
    lifecycle.stop_event().wait()
    self._server.stop()


class Columns:
  """Names the leaves of an unroll, so that Reverb holds a flat dictionary of arrays."""

  def __init__(self, example: Unroll):
    """Takes the structure of `example`, whose leaves have shapes and dtypes without a batch axis."""
    paths, self._structure = jax.tree_util.tree_flatten_with_path(example)
    self.names = [_name(path) for path, _ in paths]
    self.shapes = {n: tuple(leaf.shape) for n, (_, leaf) in zip(self.names, paths, strict=True)}
    self.dtypes = {n: np.dtype(leaf.dtype) for n, (_, leaf) in zip(self.names, paths, strict=True)}

  def flatten(self, unroll: Unroll) -> dict[str, Array]:
    """Returns the leaves by name."""
    return dict(zip(self.names, jax.tree.leaves(unroll), strict=True))

  def unflatten(self, columns: dict[str, Array]) -> Unroll:
    """The inverse of `flatten`."""
    return jax.tree.unflatten(self._structure, [columns[name] for name in self.names])


def _name(path: tuple[Any, ...]) -> str:
  return '/'.join(str(getattr(p, 'name', getattr(p, 'key', getattr(p, 'idx', p)))) for p in path)


class UnrollWriter:
  """Writes unrolls to replay from a thread of its own.

  What waits to be written is bounded by the buffers of the streams: a stream whose unrolls have not
  been taken by replay gets no actions, so a full queue slows the environments down and loses nothing.
  """

  def __init__(self, address: str, columns: Columns):
    self._columns = columns
    self._writer = reverb.Client(address).trajectory_writer(num_keep_alive_refs=1)
    self._waiting: queue.SimpleQueue[tuple[Unroll, Callable[[], None]] | None] = queue.SimpleQueue()
    self._thread = threading.Thread(target=self._run, name='unroll-writer', daemon=True)
    self._stopping = threading.Event()
    self._error: BaseException | None = None
    self.written = 0
    self._thread.start()

  def put(self, unrolls: Unroll, release: Callable[[], None]) -> None:
    """Queues unrolls, fields `[N, L, ...]`; `release` is called when they have been copied."""
    self._waiting.put((unrolls, release))

  def check(self) -> None:
    """Raises what the writing thread failed with, if it failed."""
    if self._error is not None:
      raise self._error

  def close(self) -> None:
    """Stops writing; what replay has not taken is given up."""
    self._stopping.set()
    self._waiting.put(None)

  def _run(self) -> None:
    try:
      while (item := self._waiting.get()) is not None and not self._stopping.is_set():
        unrolls, release = item
        leaves = self._columns.flatten(unrolls)
        count = len(unrolls.environment_id)
        for i in range(count):
          self._writer.append({name: leaf[i] for name, leaf in leaves.items()})
          history = self._writer.history
          self._writer.create_item(TABLE, 1.0, {name: history[name][-1] for name in leaves})
        release()
        self._flush()
        self.written += count
    except BaseException as error:
      if not self._stopping.is_set():
        self._error = error

  def _flush(self) -> None:
    """Waits until replay has taken the items, which for a full queue may be long."""
    while not self._stopping.is_set():
      try:
        self._writer.flush(timeout_ms=500)
        return
      except reverb.DeadlineExceededError:
        pass


class Batch(NamedTuple):
  """A batch of unrolls as sampled: fields of `unrolls` are `[B, L, ...]`."""

  unrolls: Unroll
  keys: np.ndarray  # uint64 `[B]`, Reverb's item keys.
  probabilities: np.ndarray  # float64 `[B]`, with which each item was chosen.


def sample_batches(
  address: str, columns: Columns, batch_size: int, max_in_flight: int
) -> Iterator[Batch]:
  """Yields batches from replay for ever, in NumPy arrays.

  Args:
    address: host:port of the server.
    columns: what the items hold.
    batch_size: unrolls B in a batch.
    max_in_flight: unrolls that may be on their way. They have left the queue already, so they add to
      the policy lag.
  """
  dataset = reverb.TrajectoryDataset(
    server_address=address,
    table=TABLE,
    dtypes={name: tf.as_dtype(dtype) for name, dtype in columns.dtypes.items()},
    shapes={name: tf.TensorShape(shape) for name, shape in columns.shapes.items()},
    max_in_flight_samples_per_worker=max_in_flight,
    num_workers_per_iterator=1,
  ).batch(batch_size, drop_remainder=True)
  options = tf.data.Options()
  options.threading.private_threadpool_size = 1
  for sample in dataset.with_options(options).as_numpy_iterator():
    yield Batch(columns.unflatten(sample.data), sample.info.key, sample.info.probability)


def occupancy(client: reverb.Client) -> int:
  """Returns how many items the table holds now."""
  return client.server_info(timeout=5)[TABLE].current_size


def unroll_spec(row: Callable[..., Any], rows: int, core_state: Nest, timestep: Nest) -> Unroll:
  """Returns an `Unroll` of `jax.ShapeDtypeStruct`s.

  Args:
    row: maps (core_state, timestep) to an `agents.agent.ActOutput`, all with a batch axis of 1.
    rows: rows L in an unroll.
    core_state: `[1, ...]` per leaf.
    timestep: fields are `[1, ...]`.
  """
  output = jax.eval_shape(row, core_state, timestep)

  def with_rows(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype)

  return Unroll(
    timestep=jax.tree.map(with_rows, timestep),
    action=with_rows(output.action),
    extras=jax.tree.map(with_rows, output.extras),
    policy_version=jax.ShapeDtypeStruct((rows,), np.int32),
    core_state=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), core_state),
    environment_id=jax.ShapeDtypeStruct((), np.int32),
  )
