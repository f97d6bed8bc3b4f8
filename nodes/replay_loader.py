"""Loads transitions that other runs have recorded into a table of replay."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging
from acme import specs

from agents.agent import Agent
from environments.base import BatchedEnvironment, describe
from nodes.learning.options import LoadingOptions
from nodes.runtime import activity, lifecycle
from nodes.runtime.reporter import Reporter
from nodes.unrolls import reader, transitions
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from nodes.unrolls.table_names import OFFLINE
from nodes.unrolls.writer import UnrollWriter
from rundir import audit

_POLL_SECONDS = 0.1
_CHECK_SECONDS = 2.0
_BLOCK = 1024  # Transitions between two looks at what the table holds.


class ReplayLoader:
  """Fills the table `OFFLINE` of every replay server, and again if a server has lost what it held.

  Server k of K gets transitions k, k + K, and so on, always in the same order. A table that holds n of
  them holds the first n, so the loader writes those after them: after its own restart, and after one of
  a server, whether from a checkpoint or empty. What is under way at such a restart may be written twice,
  in place of others: at most a block of 1,024 transitions. A table never holds more transitions than
  there are.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    replay_addresses: Sequence[str],
    monitor: Any,
    options: LoadingOptions,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions. Its unrolls have two rows,
        no extras and no core state.
      make_environment: takes (number of environments, seed); used for its specs only.
      replay_addresses: host:port of each Reverb server.
      monitor: Courier client of the monitor.
      options: of loading.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._addresses = replay_addresses
    self._options = options
    self._held = [0] * len(replay_addresses)
    self._reporter = Reporter(monitor, options.name, self._measure)

  def run(self) -> None:
    """Loads, and keeps the tables filled, until the program stops."""
    self._stop = lifecycle.stop_event()
    activity.mark(activity.STARTING)
    spec, _ = describe(self._make_environment)
    columns = Columns(unroll_spec(self._make_agent(spec.observations, spec.actions), spec))
    records = audit.Audit(self._options.audit_dir, audit.LOADED)
    with contextlib.ExitStack() as stack, contextlib.suppress(lifecycle.Stopped):
      stack.enter_context(self._reporter)
      shards = [_Shard(address, columns, records.record) for address in self._addresses]
      for shard in shards:
        stack.enter_context(contextlib.closing(shard))
      while True:
        self._poll(shards)
        if self._some_missing(shards):
          self._fill(shards, columns)
        activity.mark(activity.IDLE)
        if self._stop.wait(_CHECK_SECONDS):
          return

  def _some_missing(self, shards: Sequence[_Shard]) -> bool:
    return any(shard.missing(self._wanted(k)) for k, shard in enumerate(shards))

  def _fill(self, shards: Sequence[_Shard], columns: Columns) -> None:
    """Writes what the servers lack, in one pass over the files; ends early if one loses any.

    Raises:
      lifecycle.NonRetryableError: the files have less than the servers lack.
    """
    options, first = self._options, 0
    for chunk in transitions.read(options.run_dirs, options.recorded, options.wanted):
      count = len(chunk['action'])
      unrolls = _completed(columns, chunk, count)
      for start in range(0, count, _BLOCK):
        number = np.arange(start, min(start + _BLOCK, count))
        for k, shard in enumerate(shards):
          mine = number[(first + number) % len(shards) == k]
          place = (first + mine) // len(shards)  # Among the transitions of this server.
          new = mine[(place >= shard.size) & (place < shard.capacity)]
          if len(new):
            shard.put({name: column[new] for name, column in unrolls.items()}, self._wait)
        expected = [shard.size + shard.in_flight for shard in shards]
        self._poll(shards)
        if any(shard.size < size for shard, size in zip(shards, expected, strict=True)):
          logging.warning('a replay server has lost transitions; they are loaded again')
          return
      first += count
    if self._some_missing(shards):
      raise lifecycle.NonRetryableError(
        f'{", ".join(options.run_dirs)}: there are fewer recorded transitions than when the program was '
        'launched; put back what was removed, or launch it again.'
      )
    logging.info('loaded %d transitions', sum(self._held))

  def _poll(self, shards: Sequence[_Shard]) -> None:
    """Waits until every server has accepted what is in flight, and updates the sizes."""
    for k, shard in enumerate(shards):
      activity.mark(activity.WAITING_FOR_REPLAY)
      while not shard.poll():
        self._wait()
      self._held[k] = shard.size
      self._reporter.maybe_report()

  def _wait(self) -> None:
    self._reporter.maybe_report()
    if self._stop.wait(_POLL_SECONDS):
      raise lifecycle.Stopped

  def _wanted(self, shard: int) -> int:
    """Returns the number of transitions for a server."""
    return len(range(shard, self._options.wanted, len(self._addresses)))

  def _measure(self, seconds: float) -> dict[str, float]:
    return {'transitions_loaded': float(sum(self._held))}


class _Shard:
  """The table of one server, and the writer to it.

  Attributes:
    size: transitions in the table at the last poll.
    capacity: transitions that it can hold.
    in_flight: transitions written since that poll.
  """

  def __init__(self, address: str, columns: Columns, produced: Callable[[np.ndarray], None]):
    self._address, self._columns = address, columns
    self._writer = UnrollWriter([address], columns, produced=produced, tables=(OFFLINE,))
    self._writer.start()
    self._put = 0
    self.size = self.capacity = self.in_flight = 0

  def missing(self, wanted: int) -> int:
    """Returns how many of `wanted` transitions the table lacks and has room for."""
    return max(0, min(wanted, self.capacity) - self.size)

  def put(self, columns: dict[str, np.ndarray], wait: Callable[[], None]) -> None:
    """Writes unrolls, columns `[N, ...]`; calls `wait` until replay has accepted them."""
    accepted = threading.Event()
    self._writer.put(self._columns.unflatten(columns), accepted.set)
    while not accepted.wait(_POLL_SECONDS):
      self._writer.check()
      wait()
    self._put += len(columns['action'])
    self.in_flight += len(columns['action'])

  def poll(self) -> bool:
    """Updates `size` and `capacity` once all that was written is accepted; returns whether it has."""
    self._writer.check()
    if self._writer.accepted < self._put:
      return False
    found = reader.occupancy(self._address, OFFLINE)
    if found is None:
      return False
    self.size, self.capacity = found
    self.in_flight = 0
    return True

  def close(self) -> None:
    """Stops writing."""
    self._writer.close()


def _completed(columns: Columns, chunk: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
  """Returns the columns of unrolls: recorded ones, and zeros for the others.

  The parameters that chose the actions are not of this run, so they count as its first.
  """
  missing = {name: columns.stored[name] for name in columns.names if name not in chunk}
  zeros = {name: np.zeros((count, *shape), dtype) for name, (shape, dtype) in missing.items()}
  return {**chunk, **zeros}
