"""Writes unrolls to replay.

Each Reverb item has one step and one column, the bytes of one unroll or several; see
`nodes.unrolls.packing`.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from absl import logging
from acme import specs

from agents import compilation
from agents.agent import Agent
from agents.types import Array, Unroll
from nodes.runtime import lifecycle
from nodes.runtime.watchdog import Watchdog
from nodes.unrolls import replay_client
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.observers import UnrollObservers
from nodes.unrolls.packing import UNROLL_ID, Columns
from nodes.unrolls.recorder import UnrollRecorder, make_recorder
from nodes.unrolls.table_names import UNROLLS, WRITERS
from rundir import audit
from rundir.recorded_unrolls import RecordingOptions

LONG_WAIT_SECONDS = 30
_LOOK_SECONDS = 5.0


def make_writer(
  agent: Agent,
  environment_spec: specs.EnvironmentSpec,
  replay_addresses: Sequence[str],
  audit_dir: str,
  observers: Sequence[Any] = (),
  unrolls_per_item: int = 1,
  tables: Sequence[str] = (UNROLLS,),
  recording: RecordingOptions | None = None,
) -> UnrollWriter:
  """Returns a writer of an agent's unrolls with the agent's initial priorities.

  Args:
    agent: the algorithm.
    environment_spec: of one environment.
    replay_addresses: host:port of each Reverb server.
    audit_dir: directory of unroll records; '' for none. See `rundir.audit`.
    observers: clients of nodes that observe the unrolls. See `nodes.unrolls.observers`.
    unrolls_per_item: unrolls in a Reverb item; 1 for agents with priorities.
    tables: names of the tables that get each unroll.
    recording: options of the recording of the unrolls; None for none.
  """
  columns = Columns(unroll_spec(agent, environment_spec), unrolls_per_item)
  return UnrollWriter(
    replay_addresses,
    columns,
    compilation.on_cpu(agent.initial_priorities),
    audit.Audit(audit_dir, audit.PRODUCED).record,
    UnrollObservers(observers),
    tables,
    make_recorder(agent, environment_spec.actions, columns, recording),
  )


class UnrollWriter:
  """Writes unrolls from its own thread to several replay servers, round-robin.

  While replay has not accepted a group's unrolls, the group completes the next ones and then gets no
  actions. So a full table slows the environments down, drops nothing, and few unrolls age before it.

  Attributes:
    written: unrolls given to Reverb.
    accepted: those of them that replay has accepted.
  """

  def __init__(
    self,
    addresses: Sequence[str],
    columns: Columns,
    priorities: Callable[[Unroll], Array | None] = lambda unrolls: None,
    produced: Callable[[np.ndarray], None] = lambda unroll_ids: None,
    observers: UnrollObservers | None = None,
    tables: Sequence[str] = (UNROLLS,),
    recorder: UnrollRecorder | None = None,
  ):
    """Initialises a writer; `start` starts its thread.

    Args:
      addresses: host:port of each server.
      columns: layout of an item.
      priorities: returns float32 `[N]` for unrolls `[N, L, ...]`, or None if replay ignores them, as it
        does items of several unrolls.
      produced: receives the ids of unrolls, int64 `[N]`, before replay does.
      observers: receive the columns of unrolls, `[N, L, ...]`, before replay does.
      tables: names of the tables that get an item each for the same bytes.
      recorder: records the columns of unrolls, before replay gets them; the writer closes it.
    """
    self._tables = tables
    self._columns = columns
    self._produced = produced
    self._observers = observers or UnrollObservers([])
    self._recorder = recorder
    self._first_id = secrets.randbits(31) << 32  # Differs between incarnations of a writer.
    self._priorities = priorities
    self._addresses = addresses
    self._writers: list[replay_client.Writer] = []
    self._waiting: queue.SimpleQueue[tuple[Unroll, Callable[[], None]] | None] = queue.SimpleQueue()
    self._thread = threading.Thread(target=self._run, name='unroll-writer', daemon=True)
    self._stopping = threading.Event()
    self._watch = Watchdog('the writing of unrolls')
    self._error: BaseException | None = None
    self.written = self.accepted = 0

  def compile(self, sizes: Iterable[int]) -> None:
    """Compiles the priorities for groups of these numbers of environments."""
    for size in sizes:
      zeros = {
        name: np.zeros((size, *shape), dtype)
        for name, (shape, dtype) in self._columns.stored.items()
      }
      self._priorities(self._columns.unflatten(zeros))

  def start(self) -> None:
    """Starts the writing thread."""
    self._thread.start()

  def put(self, unrolls: Unroll, release: Callable[[], None]) -> None:
    """Queues unrolls, fields `[N, L, ...]`; calls `release` once replay has accepted them."""
    self._waiting.put((unrolls, release))

  def check(self) -> None:
    """Raises the error that stopped the writing thread, if any, or TimeoutError if it hangs.

    Waiting for replay is back-pressure, not a hang.
    """
    if self._error is not None:
      raise self._error
    self._watch.check()

  def close(self) -> None:
    """Stops writing; drops unrolls that replay has not accepted. A recording ends before the exit."""
    self._stopping.set()
    self._waiting.put(None)
    self._observers.close()
    if self._recorder is not None:
      lifecycle.run_before_exit(self._recorder.close)

  def _run(self) -> None:
    try:
      self._writers = [replay_client.Writer(address) for address in self._addresses]
      while (item := self._next()) is not None and not self._stopping.is_set():
        unrolls, release = item
        with self._watch:
          self._append(unrolls)
        self._flush()
        release()
        self.accepted = self.written
    except BaseException as error:
      if not self._stopping.is_set():
        self._error = error
    finally:
      for writer in self._writers:  # A server that stops waits 5 seconds for streams that are open.
        writer.close()

  def _next(self) -> tuple[Unroll, Callable[[], None]] | None:
    """Waits for unrolls; None at the end. An old chunk of a recording does not wait for them."""
    while True:
      try:
        return self._waiting.get(timeout=_LOOK_SECONDS)
      except queue.Empty:
        if self._recorder is not None:
          with self._watch:
            self._recorder.look()

  def _append(self, unrolls: Unroll) -> None:
    priorities = self._priorities(unrolls)
    count, grouped = len(unrolls.environment_id), self._columns.unrolls_per_item
    if priorities is None:
      weights = np.ones(count // grouped)
    elif grouped == 1:
      weights = np.asarray(priorities, np.float64)
    else:
      raise ValueError(f'items of {grouped} unrolls have no priorities of their own')
    ids = self._first_id + self.written + np.arange(count)
    self._produced(ids)
    leaves = self._columns.flatten(unrolls) | {UNROLL_ID: ids}
    self._observers.notify(leaves)
    if self._recorder is not None:
      self._recorder.record(leaves)
    packed = self._columns.pack(leaves)
    for item, weight in zip(packed, weights.tolist(), strict=True):
      writer = self._writers[self.written // grouped % len(self._writers)]
      writer.insert(item, dict.fromkeys(self._tables, weight))
      self.written += grouped

  def _flush(self) -> None:
    """Waits until replay has accepted the items, possibly long if a table is full."""
    started, warned = time.monotonic(), False
    while not self._stopping.is_set() and not replay_client.flush(self._writers, 0.5):
      if not warned and time.monotonic() - started > LONG_WAIT_SECONDS:
        warned = True
        logging.warning(
          'replay has accepted no unroll for %d s: it is unavailable or full, or its rate limiter '
          'waits for samples; %s wait for the learner.',
          LONG_WAIT_SECONDS,
          WRITERS.get(self._tables[0], 'writers'),
        )
