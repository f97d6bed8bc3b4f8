"""A CSV file of numbers: rows under the header to which they belong, and what is new in it."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence

from rundir import files
from rundir.appending import AppendedFile

_CHUNK = 1 << 20


class CsvWriter:
  """Adds rows to a CSV file. A column means the same in all of them.

  The file has the columns that any row had: where a row has others, those before it get them too, empty.
  A row that cannot be written leaves the file as it was, so the next may be tried.
  """

  def __init__(self, path: str):
    """Opens the file, or makes it, and its directory."""
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    self._path = path
    self._open()

  def write(self, row: Mapping[str, object]) -> None:
    """Adds a row.

    Raises:
      OSError: if it cannot be written.
    """
    if new := sorted(row.keys() - set(self._columns)):
      self._add_columns(new)
    self._file.append(_line([row.get(name, '') for name in self._columns]))

  def close(self) -> None:
    """Closes the file."""
    self._file.close()

  def _open(self) -> None:
    self._file = AppendedFile(self._path)
    self._file.drop_unfinished_line()
    self._columns = header(self._path)

  def _add_columns(self, new: Sequence[str]) -> None:
    columns = [*self._columns, *new]
    if not self._columns:
      self._file.append(_line(columns))
    else:
      with open(self._path, 'rb') as old, files.replacing(self._path) as wider:
        wider.write(_line(columns))
        old.readline()
        for line in old:
          wider.write(line.rstrip(b'\r\n') + b',' * len(new) + b'\n')
      self._file.close()
      self._open()
    self._columns = columns


def header(path: str) -> list[str]:
  """Returns the names of the columns; [] if the file has none yet, or is not there."""
  try:
    with open(path, 'rb') as file:
      line = file.readline()
  except FileNotFoundError:
    return []
  return _cells(line) if line.endswith(b'\n') else []


def numbers(path: str, columns: Sequence[str]) -> Iterator[tuple[float, ...]]:
  """Yields the rows of a file in which all of some columns have finite values.

  Nothing, if the file is not there or has not all of them. It is read as far as rows are taken.
  """
  if not set(columns) <= set(header(path)):
    return
  reader = CsvReader(path)
  while rows := reader.read(_CHUNK):
    yield from finite(rows, reader.columns, columns)


def finite(
  rows: Sequence[Sequence[bytes]], names: Sequence[str], columns: Sequence[str]
) -> Iterator[tuple[float, ...]]:
  """Yields the values of some columns, of the rows in which all of them are finite.

  Args:
    rows: their cells.
    names: of all columns.
    columns: which are wanted; nothing is yielded if one is none of the names.
  """
  if not set(columns) <= set(names):
    return
  places = [names.index(name) for name in columns]
  for row in rows:
    values = tuple(number(row[place]) if place < len(row) else math.nan for place in places)
    if all(map(math.isfinite, values)):
      yield values


class CsvReader:
  """Reads what has been added to a CSV file since it read last.

  A row that is not finished is left for the next time. A file that is shorter than before, or has other
  columns, is read from its beginning.

  Attributes:
    columns: the names in its header; [] before there is one.
    offset: bytes that have been read, or passed over.
    restarts: how often it has begun again; sums of earlier rows are void when it grows.
  """

  def __init__(self, path: str):
    """Reads nothing yet."""
    self._path = path
    self.columns: list[str] = []
    self.offset = 0
    self.restarts = 0

  def read(self, limit: int | None = None) -> list[list[bytes]]:
    """Returns the cells of each row that has been added.

    Args:
      limit: bytes to read at most, if a row ends within; None for all that there are.
    """
    try:
      with open(self._path, 'rb') as file:
        if not self._begin(file):
          return []
        file.seek(self.offset)
        block = file.read() if limit is None else file.read(limit)
        if limit is not None and b'\n' not in block:
          block += file.readline()
    except FileNotFoundError:
      return []
    block = block[: block.rfind(b'\n') + 1]
    self.offset += len(block)
    return [line.split(b',') for line in block.splitlines()]

  def skip_to_tail(self, size: int) -> None:
    """Passes over all but the rows in about the last `size` bytes."""
    try:
      with open(self._path, 'rb') as file:
        end = os.fstat(file.fileno()).st_size
        if self._begin(file) and end - size > self.offset:
          file.seek(end - size - 1)
          file.readline()
          self.offset = file.tell()
    except FileNotFoundError:
      pass

  def _begin(self, file: io.BufferedReader) -> bool:
    """Looks whether it is still the file that was read; returns whether it has a header."""
    line = file.readline()
    columns = _cells(line) if line.endswith(b'\n') else []
    if columns != self.columns or os.fstat(file.fileno()).st_size < self.offset:
      self.restarts += bool(self.columns)
      self.columns, self.offset = columns, len(line) if columns else 0
    return bool(columns)


def number(text: bytes) -> float:
  """Returns a cell's number; nan of one that has none, such as of a row that was cut off."""
  try:
    return float(text)
  except ValueError:
    return math.nan


def _line(cells: Sequence[object]) -> bytes:
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerow(cells)
  return text.getvalue().encode()


def _cells(line: bytes) -> list[str]:
  return next(csv.reader([line.decode(errors='replace')]), [])
