"""Reads the new rows of a CSV file, across changes of its columns and restarts of the reader."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rundir.csv_file import CsvReader

_CHUNK_BYTES = 1 << 20

Row = dict[str, bytes]


class NewRows:
  """The rows of a CSV file from a given one on.

  A file that gets another column is written again, with the same rows. They count as read.
  """

  def __init__(self, path: str, first: int = 0, end: int | None = None):
    """Initialises the reader without opening the file.

    Args:
      path: of the file.
      first: number of rows to skip.
      end: number of the row to stop before; None for no end.
    """
    self._reader = CsvReader(path)
    self._restarts = 0
    self._place = 0  # Rows between the beginning of the file and the reader.
    self._next = first
    self._end = math.inf if end is None else end

  def read(self) -> list[Row]:
    """Returns some more rows, about a MiB; [] if there are none now."""
    while batch := self._reader.read(_CHUNK_BYTES):
      if self._reader.restarts != self._restarts:
        self._restarts, self._place = self._reader.restarts, 0
      begin, self._place = self._place, self._place + len(batch)
      known = max(0, self._next - begin)
      stop = min(len(batch), max(0, int(min(self._end, self._place)) - begin))
      if new := batch[known:stop]:
        self._next = begin + stop
        return [dict(zip(self._reader.columns, row, strict=False)) for row in new]
    return []


class Windows:
  """Groups rows by windows of the run's time, so that their means do not depend on when they are read.

  Attributes:
    count: rows of the groups returned so far.
  """

  def __init__(self, column: str, seconds: float, count: int = 0):
    """Initialises an empty group.

    Args:
      column: the rows' time in seconds.
      seconds: length of a window; 0 for groups of one row.
      count: rows of earlier groups.
    """
    self._column = column
    self._seconds = seconds
    self._rows: list[Row] = []
    self._window = math.nan
    self.count = count

  def add(self, rows: list[Row], flush: bool) -> Iterator[list[Row]]:
    """Yields each group that is complete.

    Args:
      rows: the new rows.
      flush: whether no later row can belong to the last group.
    """
    for row in rows:
      window = self._window_of(row)
      if self._rows and (not self._seconds or window != self._window):
        yield self._take()
      self._window = window
      self._rows.append(row)
    if self._rows and (flush or not self._seconds):
      yield self._take()

  def _take(self) -> list[Row]:
    group, self._rows = self._rows, []
    self.count += len(group)
    return group

  def _window_of(self, row: Row) -> float:
    if not self._seconds:
      return 0.0
    try:
      return float(row.get(self._column, b'')) // self._seconds
    except ValueError:
      return self._window
