"""Reads a node's CSV log incrementally."""

from __future__ import annotations

import math
from collections.abc import Sequence

from launchers.recent import Recent
from rundir import csv_file

_TAIL_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 22
_RECENT_ROWS = 100  # More than nodes report in a minute, except Anakin's.


class NodeLog:
  """The CSV file of a node; `update` reads the new rows.

  Attributes:
    latest: the last finite value in each column that has one. In a file without a requested series, the
      first read covers only the end of the file.
    recent: the reports of the last minute in the file.
    series: for each requested set of columns, the rows in which all of them are finite.
  """

  def __init__(self, path: str, series: Sequence[tuple[str, ...]], tail_bytes: int = _TAIL_BYTES):
    """Initialises the log without reading it.

    Args:
      path: path of the file.
      series: sets of columns whose rows are kept; a file with all columns of a set is read whole.
      tail_bytes: bytes at the end of another file that the first read covers.
    """
    self._path = path
    self._reader = csv_file.CsvReader(path)
    self._restarts = -1
    self._series = series
    self._tail_bytes = tail_bytes
    self.latest: dict[str, float] = {}
    self.recent = Recent()
    self.series: dict[tuple[str, ...], list[tuple[float, ...]]] = {}

  def update(self) -> None:
    """Reads the rows added since the last call."""
    if self._restarts < 0:
      self._forget()
    while rows := self._reader.read(_CHUNK_BYTES):
      if self._reader.restarts != self._restarts:
        self._forget()
        continue
      self._take(rows)

  def first(self, *columns: str) -> tuple[float, ...] | None:
    """Returns the first row of the file in which all given columns are finite."""
    return next(csv_file.numbers(self._path, columns), None)

  def _forget(self) -> None:
    """Resets the state; skips to the tail of a file without a requested series."""
    self._reader = csv_file.CsvReader(self._path)
    self._restarts = 0
    self.latest = {}
    self.recent.clear()
    self.series = {columns: [] for columns in self._series}
    names = set(csv_file.header(self._path))
    if not any(names.issuperset(columns) for columns in self._series):
      self._reader.skip_to_tail(self._tail_bytes)

  def _take(self, rows: list[list[bytes]]) -> None:
    names = self._reader.columns
    for place, name in enumerate(names):
      for row in reversed(rows):
        if place < len(row) and math.isfinite(value := csv_file.number(row[place])):
          self.latest[name] = value
          break
    for row in rows[-_RECENT_ROWS:]:
      values = dict(zip(names, map(csv_file.number, row), strict=False))
      self.recent.add(values.get('seconds', math.nan), values)
    for columns, kept in self.series.items():
      kept += csv_file.finite(rows, names, columns)
