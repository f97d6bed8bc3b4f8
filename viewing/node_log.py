"""What a node has logged, of which only what is new is read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rundir import csv_file

_TAIL_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 22


class NodeLog:
  """The CSV file of a node, looked at again and again.

  Attributes:
    latest: the last finite value in each column that has one; of a file without a series, as far as
      they are near its end when it is looked at first.
    series: rows of the columns that were asked for, in which all have finite values.
  """

  def __init__(self, path: str, series: Sequence[tuple[str, ...]]):
    """Reads nothing yet.

    Args:
      path: of the file.
      series: columns whose rows are kept; the file is read whole if it has those of one of them.
    """
    self._path = path
    self._reader = csv_file.CsvReader(path)
    self._restarts = -1
    self._series = series
    self.latest: dict[str, float] = {}
    self.series: dict[tuple[str, ...], list[tuple[float, ...]]] = {}

  def update(self) -> None:
    """Reads what has been added since the last time."""
    if self._restarts < 0:
      self._forget()
    while rows := self._reader.read(_CHUNK_BYTES):
      if self._reader.restarts != self._restarts:
        self._forget()
        continue
      self._take(rows)

  def first(self, *columns: str) -> tuple[float, ...] | None:
    """Returns the first row of the file in which all of some columns have finite values."""
    return next(csv_file.numbers(self._path, columns), None)

  def _forget(self) -> None:
    """Begins again, as far from the end as is worth it."""
    self._reader = csv_file.CsvReader(self._path)
    self._restarts = 0
    self.latest = {}
    self.series = {columns: [] for columns in self._series}
    names = set(csv_file.header(self._path))
    if not any(names.issuperset(columns) for columns in self._series):
      self._reader.skip_to_tail(_TAIL_BYTES)

  def _take(self, rows: list[list[bytes]]) -> None:
    names = self._reader.columns
    for place, name in enumerate(names):
      for row in reversed(rows):
        if place < len(row) and math.isfinite(value := csv_file.number(row[place])):
          self.latest[name] = value
          break
    for columns, kept in self.series.items():
      kept += csv_file.finite(rows, names, columns)
