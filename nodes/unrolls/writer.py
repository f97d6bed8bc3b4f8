"""Writes unrolls to replay.

One unroll is one Reverb item with one step, whose one column is the unroll as bytes; see
`nodes.unrolls.packing`.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import reverb
from absl import logging

from agents.types import Array, Unroll
from nodes.unrolls.packing import PACKED, UNROLL_ID, Columns
from nodes.unrolls.tables import TABLE

LONG_WAIT_SECONDS = 30


class UnrollWriter:
  """Writes unrolls to replay from a thread of its own, to several servers in turn.

  What waits to be written is bounded by the buffers of the streams: a stream whose unrolls have not
  been taken by replay gets no actions, so a full table slows the environments down and loses nothing.
  """

  def __init__(
    self,
    addresses: Sequence[str],
    columns: Columns,
    priorities: Callable[[Unroll], Array | None] = lambda unrolls: None,
    produced: Callable[[np.ndarray], None] = lambda unroll_ids: None,
    show: Callable[[dict[str, Array]], None] = lambda columns: None,
  ):
    """Starts the thread.

    Args:
      addresses: host:port of each server.
      columns: what an item holds.
      priorities: returns float32 `[N]` for unrolls `[N, L, ...]`, or None where they do not matter.
      produced: takes the ids of unrolls, int64 `[N]`, before replay gets them.
      show: takes the columns of unrolls, `[N, L, ...]`, before replay gets them; to be copied.
    """
    self._columns = columns
    self._produced = produced
    self._show = show
    self._first_id = secrets.randbits(31) << 32  # No two lives of a writer give the same ids.
    self._priorities = priorities
    self._writers = [
      reverb.Client(address).trajectory_writer(num_keep_alive_refs=1) for address in addresses
    ]
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
        self._append(unrolls)
        release()
        for writer in self._writers:
          self._flush(writer)
    except BaseException as error:
      if not self._stopping.is_set():
        self._error = error

  def _append(self, unrolls: Unroll) -> None:
    priorities = self._priorities(unrolls)
    count = len(unrolls.environment_id)
    weights = np.ones(count) if priorities is None else np.asarray(priorities, np.float64)
    ids = self._first_id + self.written + np.arange(count)
    self._produced(ids)
    leaves = self._columns.flatten(unrolls) | {UNROLL_ID: ids}
    self._show(leaves)
    packed = self._columns.pack(leaves)
    for i in range(count):
      writer = self._writers[self.written % len(self._writers)]
      writer.append({PACKED: packed[i]})
      writer.create_item(TABLE, float(weights[i]), {PACKED: writer.history[PACKED][-1]})
      self.written += 1

  def _flush(self, writer: reverb.TrajectoryWriter) -> None:
    """Waits until replay has taken the items, which for a full table may be long."""
    started, warned = time.monotonic(), False
    while not self._stopping.is_set():
      try:
        writer.flush(timeout_ms=500)
        return
      except reverb.DeadlineExceededError:
        if not warned and time.monotonic() - started > LONG_WAIT_SECONDS:
          warned = True
          logging.warning(
            'replay has taken no unroll for %d s: it is away, or full, or its ratio of samples to '
            'inserts is not reached; actors wait for the learner.',
            LONG_WAIT_SECONDS,
          )
