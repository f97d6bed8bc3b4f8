"""Records the unrolls of a run in its directory, in chunks; see `rundir.recorded_unrolls`."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import numpy as np
from absl import logging
from acme import specs

from agents import spaces
from agents.agent import Agent
from agents.types import Array
from nodes.unrolls.packing import UNROLL_ID, Columns
from rundir import recorded_unrolls
from rundir.recorded_unrolls import RecordingOptions

_CORE_STATE = 'core_state'
_WITHOUT_ROWS = {'environment_id', UNROLL_ID}


class UnrollRecorder:
  """Writes what one writer of unrolls inserts into replay to the run directory.

  It records what is inserted, not what is sampled. Each row is then recorded once, at a cost that does
  not depend on replay: a queue and a prioritized table give the same recording. It keeps the rows of one
  period and the row after them, so rows that unrolls share for burn-in or bootstrapping are not stored
  twice.

  A chunk is written when it is full or old. A killed process loses its chunk in memory. If a chunk
  cannot be written, as on a full disk, it is dropped and counted, and the next one is tried. The
  recording ends before the chunk that would exceed `max_bytes`. Training continues in each case.

  Attributes:
    recorded: unrolls on disk.
    dropped: unrolls that could not be written.
  """

  def __init__(
    self,
    columns: Columns,
    rows: int,
    options: RecordingOptions,
    num_actions: tuple[int, ...] = (),
  ):
    """Initialises a recorder; nothing is written before the first unroll.

    Args:
      columns: the unrolls that are given.
      rows: rows R of them to record.
      options: of recording.
      num_actions: as in `recorded_unrolls.Format`.
    """
    self._options = options
    names = [name for name in columns.stored if name.partition('/')[0] != _CORE_STATE]
    self._rows = {name: name not in _WITHOUT_ROWS for name in names}
    self._num_rows = rows
    self._layout = {}
    for name, has_rows in self._rows.items():
      shape, dtype = columns.stored[name]
      self._layout[name] = ((rows, *shape[1:]) if has_rows else shape, dtype)
    self._format = recorded_unrolls.Format(
      rows,
      {name: (shape, dtype.name) for name, (shape, dtype) in self._layout.items()},
      num_actions=num_actions,
    )
    example = (np.empty(shape, dtype) for shape, dtype in self._layout.values())
    self._capacity = max(1, options.chunk_bytes // sum(column.nbytes for column in example))
    self._chunk: dict[str, np.ndarray] = {}
    self._count = 0
    self._began = 0.0
    self._lock = threading.Lock()
    self._open, self._begun = True, False
    self.recorded = self.dropped = 0

  def record(self, columns: Mapping[str, Array]) -> None:
    """Copies unrolls, columns `[N, ...]`, and writes each chunk that they complete.

    Raises:
      NonRetryableError: if the run has recorded unrolls of another layout.
    """
    with self._lock:
      start, count = 0, len(columns[UNROLL_ID])
      while self._open and start < count:
        if not self._chunk:
          self._chunk = {
            name: np.empty((self._capacity, *shape), dtype)
            for name, (shape, dtype) in self._layout.items()
          }
        if not self._count:
          self._began = time.monotonic()
        stop = min(count, start + self._capacity - self._count)
        place = slice(self._count, self._count + stop - start)
        for name, has_rows in self._rows.items():
          values = columns[name][start:stop]
          self._chunk[name][place] = values[:, : self._num_rows] if has_rows else values
        self._count, start = place.stop, stop
        if self._count == self._capacity:
          self._write()
      self._write_if_old()

  def look(self) -> None:
    """Writes the chunk if it is old; called while there are no unrolls."""
    with self._lock:
      self._write_if_old()

  def close(self) -> None:
    """Writes the rest; later unrolls are not recorded."""
    with self._lock:
      if self._open and self._count:
        self._write()
      self._open = False

  def _write_if_old(self) -> None:
    age = time.monotonic() - self._began
    if self._open and self._count and age > self._options.chunk_seconds:
      self._write()

  def _write(self) -> None:
    columns = {name: column[: self._count] for name, column in self._chunk.items()}
    count, self._count = self._count, 0
    try:
      if not self._begun:
        recorded_unrolls.begin(self._options.run_dir, self._format)
        self._begun = True
      used = recorded_unrolls.size(self._options.run_dir)
      if used + sum(column.nbytes for column in columns.values()) > self._options.max_bytes:
        self._open, self._chunk = False, {}
        logging.warning(
          'the recorded unrolls take %d bytes and --record_gigabytes is reached: nothing more is '
          'recorded.',
          used,
        )
        return
      recorded_unrolls.write_chunk(self._options.run_dir, columns)
    except OSError as error:
      self.dropped += count
      logging.error('%d unrolls are not recorded, %d in all: %s', count, self.dropped, error)
      return
    self.recorded += count


def make_recorder(
  agent: Agent, action_spec: specs.Array, columns: Columns, options: RecordingOptions | None
) -> UnrollRecorder | None:
  """Returns the recorder of an agent's unrolls; None without options."""
  if options is None:
    return None
  rows = min(agent.unroll_rows, agent.unroll_period + 1)
  return UnrollRecorder(columns, rows, options, spaces.num_values(action_spec) or ())
