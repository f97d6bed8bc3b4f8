"""CSV files of numbers: a writer that can add columns, and an incremental reader."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from rundir import files, reading
from rundir.appending import AppendedFile

_CHUNK = 1 << 20


class CsvWriter:
  """Appends rows to a CSV file with one header.

  The file has the union of all rows' columns: if a row has new columns, earlier rows get empty cells.
  A failed write leaves the file unchanged, so the caller may write the next row. A file whose header is
  damaged becomes `path.damaged`.
  """

  def __init__(self, path: str):
    """Opens or creates the file and its directory."""
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    self._path = path
    self._file: AppendedFile | None = None
    self._open()

  def write(self, row: Mapping[str, object]) -> None:
    """Appends a row.

    Raises:
      OSError: if it cannot be written.
    """
    file = self._file or self._open()
    if new := sorted(row.keys() - set(self._columns)):
      file = self._add_columns(file, new)
    file.append(_line([row.get(name, '') for name in self._columns]))

  def close(self) -> None:
    """Closes the file."""
    if self._file is not None:
      self._file.close()
      self._file = None

  def _open(self) -> AppendedFile:
    """Opens the file, or leaves nothing open."""
    file = AppendedFile(self._path)
    try:
      file.drop_unfinished_line()
      columns = header(self._path)
      is_damaged = bool(file.size) and not columns  # Rows without a header cannot be read.
      if is_damaged:
        os.replace(self._path, f'{self._path}.damaged')
    except BaseException:
      file.close()
      raise
    if is_damaged:
      file.close()
      file = AppendedFile(self._path)
    self._file, self._columns = file, columns
    return file

  def _add_columns(self, file: AppendedFile, new: Sequence[str]) -> AppendedFile:
    """Adds columns to the header and to earlier rows; returns the file to append to."""
    columns = [*self._columns, *new]
    if not self._columns:
      file.append(_line(columns))
      self._columns = columns
      return file
    with open(self._path, 'rb') as old, files.replacing(self._path) as wider:
      wider.write(_line(columns))
      old.readline()
      for line in old:
        wider.write(line.rstrip(b'\r\n') + b',' * len(new) + b'\n')
    self.close()
    return self._open()


def header(path: str) -> list[str]:
  """Returns the names of the columns; [] if the file has no header yet or does not exist."""
  try:
    with reading.opened(path) as file:
      line = file.readline()
  except FileNotFoundError:
    return []
  return _cells(line) if line.endswith(b'\n') else []


def numbers(path: str, columns: Sequence[str]) -> Iterator[tuple[float, ...]]:
  """Yields the values of some columns, from the rows in which all of them are finite.

  Yields nothing if the file or one of the columns does not exist. Reads the file lazily.
  """
  if not set(columns) <= set(header(path)):
    return
  reader = CsvReader(path)
  while rows := reader.read(_CHUNK):
    yield from finite(rows, reader.columns, columns)


def finite(
  rows: Sequence[Sequence[bytes]], names: Sequence[str], columns: Sequence[str]
) -> Iterator[tuple[float, ...]]:
  """Yields the values of some columns, from the rows in which all of them are finite.

  Args:
    rows: the cells of each row.
    names: of all columns.
    columns: to select; yields nothing if one of them is not in `names`.
  """
  if not set(columns) <= set(names):
    return
  places = [names.index(name) for name in columns]
  for row in rows:
    values = tuple(number(row[place]) if place < len(row) else math.nan for place in places)
    if all(map(math.isfinite, values)):
      yield values


def thinned(path: str, points: int, whole: int = 1 << 20) -> tuple[list[str], list[list[float]]]:
  """Returns a file's columns and at most `points` rows that stand for all of it.

  Each row is the mean over some consecutive rows, without the cells that are not finite; nan if none
  is. In a file larger than `whole` bytes these are a few rows at evenly spaced places. The time then
  does not grow with the file. The last row of the file is part of the last mean.

  Args:
    path: of the file; one that does not exist has no columns.
    points: largest number of rows to return.
    whole: size in bytes up to which every row is read.
  """
  try:
    with reading.opened(path) as file:
      line = file.readline()
      columns = _cells(line) if line.endswith(b'\n') else []
      blocks = list(_blocks(file, points, whole)) if columns else []
  except FileNotFoundError:
    return [], []
  rows = ([line.split(b',') for line in block] for block in blocks)
  return columns, [_means(block, len(columns)) for block in rows]


def _blocks(file: BinaryIO, points: int, whole: int) -> Iterator[list[bytes]]:
  """Yields at most `points` blocks of complete lines, from a file that is at its first row."""
  begin, end = file.tell(), os.fstat(file.fileno()).st_size
  if end <= whole:
    lines = [line for line in file if line.endswith(b'\n')]
    step = max(-(-len(lines) // points), 1)
    yield from (lines[k : k + step] for k in range(0, len(lines), step))
    return
  width = whole // points
  for k in range(points):
    file.seek(begin + k * (end - begin - width) // (points - 1))
    lines = file.read(width).split(b'\n')
    if block := lines[k > 0 : -1]:  # Without the partial lines at both ends.
      yield block


def _means(rows: Sequence[Sequence[bytes]], width: int) -> list[float]:
  means = []
  for place in range(width):
    values = [number(row[place]) for row in rows if place < len(row)]
    known = [value for value in values if math.isfinite(value)]
    means.append(sum(known) / len(known) if known else math.nan)
  return means


class CsvReader:
  """Reads the rows added to a CSV file since the last read.

  A partial row is left for the next read. A file that has shrunk or has other columns is read from its
  start.

  Attributes:
    columns: the names in its header; [] without a header.
    offset: bytes read or skipped so far.
    restarts: number of reads from the start again; sums over earlier rows are void when it grows.
  """

  def __init__(self, path: str):
    """Initialises a reader; it opens the file in `read`."""
    self._path = path
    self.columns: list[str] = []
    self.offset = 0
    self.restarts = 0

  def read(self, limit: int | None = None) -> list[list[bytes]]:
    """Returns the cells of each row added since the last read.

    Args:
      limit: maximum number of bytes to read, but at least one row; None for no limit.
    """
    try:
      with reading.opened(self._path) as file:
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
    """Skips all but the rows in about the last `size` bytes."""
    with contextlib.suppress(FileNotFoundError):
      self.skip_to(os.path.getsize(self._path) - size)

  def skip_to(self, offset: int) -> None:
    """Continues at the first row that begins at this byte or later; below 0, at the first of all."""
    with contextlib.suppress(FileNotFoundError), reading.opened(self._path) as file:
      if self._begin(file):
        self.offset = file.tell()  # The first row.
        if offset > self.offset:
          file.seek(offset - 1)
          file.readline()
          self.offset = file.tell()

  def _begin(self, file: BinaryIO) -> bool:
    """Starts over if the file has shrunk or changed columns; returns whether it has a header."""
    line = file.readline()  # Leaves the file at its first row.
    columns = _cells(line) if line.endswith(b'\n') else []
    if columns != self.columns or os.fstat(file.fileno()).st_size < self.offset:
      self.restarts += bool(self.columns)
      self.columns, self.offset = columns, len(line) if columns else 0
    return bool(columns)


def number(text: bytes) -> float:
  """Returns a cell's number; nan if it has none, as in a truncated row."""
  try:
    return float(text)
  except ValueError:
    return math.nan


def _line(cells: Sequence[object]) -> bytes:
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerow(cells)
  return text.getvalue().encode()


def _cells(line: bytes) -> list[str]:
  if b'\0' in line:  # It is damaged, though csv would read it.
    return []
  try:
    return next(csv.reader([line.decode(errors='replace')]), [])
  except csv.Error:  # It is damaged.
    return []
