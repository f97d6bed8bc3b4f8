"""Writes unrolls to replay.

One unroll is one Reverb item with one step, whose one column is the unroll as bytes; see
`nodes.unrolls.packing`.
"""

from __future__ import annotations

import importlib
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from acme import specs

from agents.agent import Agent
from agents.types import Array, Unroll
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.observers import UnrollObservers
from nodes.unrolls.packing import PACKED, UNROLL_ID, Columns
from nodes.unrolls.tables import TABLE
from rundir import audit

LONG_WAIT_SECONDS = 30


def begin_import() -> None:
  """Begins to import Reverb, and TensorFlow with it, in a thread.

  It takes about as long as all compilation. A later import waits for the thread.
  """
  threading.Thread(target=importlib.import_module, args=('reverb',), name='import-reverb').start()


def make_writer(
  agent: Agent,
  environment_spec: specs.EnvironmentSpec,
  replay_addresses: Sequence[str],
  audit_dir: str,
  observers: Sequence[Any] = (),
) -> UnrollWriter:
  """Returns a writer of an agent's unrolls, with the priorities that the agent gives them.

  Args:
    agent: the algorithm.
    environment_spec: of one environment.
    replay_addresses: host:port of each Reverb server.
    audit_dir: where every unroll is recorded; '' for nowhere. See `rundir.audit`.
    observers: clients of nodes that see the unrolls. See `nodes.unrolls.observers`.
  """
  begin_import()
  return UnrollWriter(
    replay_addresses,
    Columns(unroll_spec(agent, environment_spec)),
    jax.jit(agent.initial_priorities),
    audit.Audit(audit_dir, audit.PRODUCED).record,
    UnrollObservers(observers),
  )


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
    observers: UnrollObservers | None = None,
  ):
    """Initialises a writer; `start` starts its thread.

    Args:
      addresses: host:port of each server.
      columns: what an item holds.
      priorities: returns float32 `[N]` for unrolls `[N, L, ...]`, or None where they do not matter.
      produced: takes the ids of unrolls, int64 `[N]`, before replay gets them.
      observers: see the columns of unrolls, `[N, L, ...]`, before replay gets them.
    """
    self._columns = columns
    self._produced = produced
    self._observers = observers or UnrollObservers([])
    self._first_id = secrets.randbits(31) << 32  # No two lives of a writer give the same ids.
    self._priorities = priorities
    self._addresses = addresses
    self._writers: list[Any] = []
    self._waiting: queue.SimpleQueue[tuple[Unroll, Callable[[], None]] | None] = queue.SimpleQueue()
    self._thread = threading.Thread(target=self._run, name='unroll-writer', daemon=True)
    self._stopping = threading.Event()
    self._error: BaseException | None = None
    self.written = 0

  def compile(self, sizes: Iterable[int]) -> None:
    """Compiles the priorities for groups of so many environments."""
    for size in sizes:
      zeros = {
        name: np.zeros((size, *shape), dtype)
        for name, (shape, dtype) in self._columns.stored.items()
      }
      self._priorities(self._columns.unflatten(zeros))

  def start(self) -> None:
    """Begins to write, once Reverb has been imported."""
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
    self._observers.close()

  def _run(self) -> None:
    try:
      import reverb

      self._writers = [
        reverb.Client(address).trajectory_writer(num_keep_alive_refs=1)
        for address in self._addresses
      ]
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
    self._observers.notify(leaves)
    packed = self._columns.pack(leaves)
    for i in range(count):
      writer = self._writers[self.written % len(self._writers)]
      writer.append({PACKED: packed[i]})
      writer.create_item(TABLE, float(weights[i]), {PACKED: writer.history[PACKED][-1]})
      self.written += 1

  def _flush(self, writer: Any) -> None:
    """Waits until replay has taken the items, which for a full table may be long."""
    import reverb

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
