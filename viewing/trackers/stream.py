"""Turns the files of a run into records for a tracker, each exactly once."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rundir import (
  csv_file,
  graph_file,
  lineage,
  node_files,
  reading,
  run_directory,
  run_end,
  secrets,
  sweep_directory,
  videos,
)
from rundir.roles import EVALUATOR
from viewing.trackers.records import AXES, Header, Media, Metrics, Outcome, Record
from viewing.trackers.rows import NewRows, Row, Windows

# Nodes of each group whose measurements are exported: a program may have hundreds of equal actors.
NODES_OF_A_GROUP = 8
_EXPORTED = {str(number) for number in range(NODES_OF_A_GROUP)}
_LONGEST_NUMBER = 18  # Digits of the actor steps in the name of a video.
_PICTURES = ('graph.svg', 'learning_curve.png')
_PROCESSES = 'processes'
_OF_A_PROCESS = ('memory_mib', 'open_files', 'threads')

Cursor = dict[str, Any]


class _Source(NamedTuple):
  """The rows of one file, and the groups that they form."""

  rows: NewRows
  windows: Windows


class Stream:
  """The records of a run that an earlier stream with the same cursor has not returned.

  They follow from the files alone. So a stream from one cursor to another returns the same records, in
  the same order, whenever it is read.

  Attributes:
    cursor: what has been returned: the number of rows of each file, and videos and other files by name.
  """

  def __init__(self, run_dir: str, every: float, cursor: Cursor, end: Cursor | None = None):
    """Initialises a stream without reading anything.

    Args:
      run_dir: the run directory.
      every: seconds of the run whose measurements become one record, their mean; 0 for all. Those of
        the evaluator are always exported one by one.
      cursor: of an earlier stream; {} for the beginning.
      end: a later cursor, at which to stop; None for no end.
    """
    self._run_dir = run_dir
    self._every = every
    self._end = end
    self._sources: dict[str, _Source] = {}
    self._before: dict[str, tuple[float, float]] = {}  # Time and CPU seconds of each process.
    self.cursor: Cursor = {'rows': {}, 'media': {}} | copy.deepcopy(cursor)

  def read(self, flush: bool) -> list[Record]:
    """Returns some more records, in the order of the run's time; [] if there are none now.

    Args:
      flush: whether the files are complete, so that the last means need not wait for more rows.
    """
    records: list[Metrics] = []
    growing = True
    # A stream with an end returns everything at once, as the stream that it repeats did.
    while growing and (not records or self._end is not None):
      growing = False
      for name, path, column, every in self._files():
        rows = self._rows(name, path, column, every)
        growing |= bool(rows)
        records += self._records(name, rows, not rows and (flush or self._end is not None))
    records.sort(key=lambda r: (r.time, r.axes.get('seconds', 0.0), r.prefix))
    return [*records, *self._media(flush or self._end is not None)]

  def _files(self) -> Iterator[tuple[str, str, str, float]]:
    """Yields the files of rows: name, path, column of the time, seconds of a mean."""
    graph = graph_file.read(self._run_dir)
    for node, path in node_files.find(self._run_dir, node_files.CSV).items():
      if _is_exported(node):
        yield node, path, 'seconds', 0.0 if EVALUATOR in graph.roles(node) else self._every
    yield _PROCESSES, run_directory.processes_path(self._run_dir), 'time', 0.0

  def _rows(self, name: str, path: str, column: str, every: float) -> list[Row]:
    if name not in self._sources:
      first = self.cursor['rows'].get(name, 0)
      if name == _PROCESSES:
        self._catch_up(path, first)
      end = None if self._end is None else self._end['rows'].get(name, 0)
      self._sources[name] = _Source(NewRows(path, first, end), Windows(column, every, first))
    return self._sources[name].rows.read()

  def _records(self, name: str, rows: list[Row], flush: bool) -> Iterator[Metrics]:
    windows = self._sources[name].windows
    for group in windows.add(rows, flush):
      found = self._of_process(group[0]) if name == _PROCESSES else _of_node(name, group)
      yield from found
      self.cursor['rows'][name] = windows.count

  def _of_process(self, row: Row) -> Iterator[Metrics]:
    """Yields what a process uses. Its cores are those between its last two rows."""
    node = row.get('node', b'').decode(errors='replace')
    cell = lambda name: csv_file.number(row.get(name, b''))  # noqa: E731
    when, used = cell('time'), cell('cpu_seconds')
    before = self._before.get(node, (math.nan, math.nan))
    self._before[node] = when, used
    values = {name: cell(name) for name in _OF_A_PROCESS}
    if when > before[0] and used >= before[1]:
      values['cores'] = (used - before[1]) / (when - before[0])
    if _is_exported(node) and math.isfinite(when):
      began = self.cursor.setdefault('began', when)
      axes = {'seconds': when - began}
      yield Metrics(f'processes/{node}', when, axes, _finite(values))

  def _catch_up(self, path: str, count: int) -> None:
    """Takes the CPU seconds of the rows that an earlier stream has returned."""
    earlier = NewRows(path, 0, count)
    while rows := earlier.read():
      for row in rows:
        for _ in self._of_process(row):
          pass

  def _media(self, complete: bool) -> Iterator[Media]:
    seen = self.cursor['media']
    with reading.without_links(self._run_dir):  # The tracker gets the whole files.
      found = [('video', path) for path in videos.paths(self._run_dir)]
      pictures = (os.path.join(self._run_dir, name) for name in _PICTURES)
      found += [(os.path.basename(path).partition('.')[0], path) for path in pictures]
      if complete:  # It grows with each score of a population.
        found.append(('lineage', lineage.path(self._run_dir)))
      found = [(name, path) for name, path in found if reading.is_file(path)]
    there: dict[str, str] = {}
    for name, path in found:
      try:
        stat = os.stat(path)
      except FileNotFoundError:
        continue
      key, version = os.path.relpath(path, self._run_dir), f'{stat.st_mtime_ns} {stat.st_size}'
      if self._end is not None and self._end['media'].get(key) != version:
        continue
      there[key] = version
      if seen.get(key) != version:
        stem = os.path.basename(path).partition('.')[0]
        known = stem.isdecimal() and len(stem) <= _LONGEST_NUMBER
        yield Media(name, path, int(stem) if known else 0)
    if self._end is None:
      self.cursor['media'] = there


def header(run_dir: str) -> Header:
  """Returns what `config.json` and the name of a run directory say.

  Raises:
    ValueError: if it is not a run directory; one sentence.
  """
  record = run_directory.read_record(run_dir)
  options = secrets.masked_options(record.config)
  shown = {
    name: secrets.masked(value) if isinstance(value, str) else value
    for name, value in options.items()
  }
  return Header(
    name=sweep_directory.title(run_dir),
    run_dir=os.path.abspath(run_dir),
    config=shown | {'program': record.program, 'versions': record.versions},
  )


def outcome(run_dir: str) -> Outcome:
  """Returns how a run that is no longer in progress has ended."""
  summary, end = run_end.read_summary(run_dir), run_end.end_of(run_dir)
  code = None if end is None else end['exit_code']
  if run_end.has_ended(run_dir):
    state = 'finished'
    code = 0 if code is None else code
  elif code is None:
    state = 'killed'
  else:
    state = 'failed' if 0 < code < 128 else 'stopped'
  numbers = {n: v for n, v in (summary or {}).items() if reading.is_number(v)}
  return Outcome(state, code, _finite(numbers))


def _is_exported(node: str) -> bool:
  number = node.rpartition('/')[2]
  return not number.isdecimal() or number in _EXPORTED


def _of_node(node: str, group: Sequence[Row]) -> Iterator[Metrics]:
  """Yields the means of some rows, at the time and counters of the last one."""
  sums: dict[str, list[float]] = {}
  for row in group:
    for name, cell in row.items():
      value = csv_file.number(cell)
      if math.isfinite(value):
        sums.setdefault(name, []).append(value)
  axes = {name: sums.pop(name)[-1] for name in AXES if name in sums}
  time = sums.pop('time', [0.0])[-1]
  values = {name: sum(known) / len(known) for name, known in sums.items()}
  if values:
    yield Metrics(node, time, axes, values)


def _finite(values: dict[str, float]) -> dict[str, float]:
  return {name: float(value) for name, value in values.items() if math.isfinite(value)}
