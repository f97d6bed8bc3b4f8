"""The events of a run: restarts, evaluations, checkpoints, compilations, replaced members."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from launchers import logs
from rundir import csv_file, graph_file, lineage, node_files, run_directory
from rundir.roles import EVALUATOR, LEARNER, REPLAY
from viewing import population

_MOST = 300  # Of each kind; the newest.
_LINES = 4000
# The beginning of a log line: level, month, day and the time of the day.
_STAMP = re.compile(r'[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.\d+ ')
_KINDS = (
  ('checkpoint', re.compile(r'wrote \S+\.checkpoint')),
  ('checkpoint', re.compile(r'wrote \S*/replay/')),
  ('compilation', re.compile(r'Finished XLA compilation|Compiling \S+ with global shapes')),
  ('resume', re.compile(r'resuming from ')),
  ('warning', re.compile(r'^[WE]\d{4} ')),
)


class Timeline:
  """The events of a run. A file that has not grown is not read again."""

  def __init__(self, run_dir: str):
    """Initialises a timeline without reading anything."""
    self._run_dir = run_dir
    self._kept: dict[str, tuple[int, list[dict[str, Any]]]] = {}

  def read(self, began: float) -> list[dict[str, Any]]:
    """Returns the events in order, each with its `time`, `kind`, `node` and `text`.

    Args:
      began: time of the start of the run, in `time.time()` seconds.
    """
    events = [
      {'time': when, 'kind': 'restart', 'node': node, 'text': f'{node} restarted'}
      for when, node in run_directory.restart_times(self._run_dir)[-_MOST:]
    ]
    path = lineage.path(self._run_dir)
    events += self._once(path, lambda: population.timeline(self._run_dir, _MOST))
    graph = graph_file.read(self._run_dir)
    for node, path in node_files.find(self._run_dir, node_files.CSV).items():
      if EVALUATOR in graph.roles(node):
        events += self._once(path, lambda path=path, node=node: _evaluations(path, node, began))
    for node, path in node_files.find(self._run_dir, node_files.LOG).items():
      if node.endswith('/0') and {LEARNER, REPLAY} & set(graph.roles(node)):
        events += self._once(path, lambda path=path, node=node: _of_log(path, node, began))
    return sorted(events, key=lambda event: event['time'])

  def _once(self, path: str, read: Any) -> list[dict[str, Any]]:
    try:
      size = os.path.getsize(path)
      if path not in self._kept or self._kept[path][0] != size:
        self._kept[path] = size, read()
    except OSError:
      return []
    return self._kept[path][1]


def _evaluations(path: str, node: str, began: float) -> list[dict[str, Any]]:
  columns, rows = csv_file.thinned(path, _MOST)
  events = []
  for row in rows:
    values = dict(zip(columns, row, strict=True))
    if values.get('evaluator_return', float('nan')) == values.get('evaluator_return'):
      when = values.get('time', began + values.get('seconds', 0.0))
      text = f'evaluation: return {values["evaluator_return"]:.4g}'
      events.append({'time': when, 'kind': 'evaluation', 'node': node, 'text': text})
  return [event for event in events if event['time'] == event['time']]


def _of_log(path: str, node: str, began: float) -> list[dict[str, Any]]:
  events = []
  for line in logs.tail(path, _LINES):
    stamp = _STAMP.match(line)
    kind = next((kind for kind, pattern in _KINDS if pattern.search(line)), '')
    if stamp and kind:
      text = line[stamp.end() :].strip().partition('] ')[2] or line.strip()
      event = {'time': _seconds(stamp, began), 'kind': kind, 'node': node, 'text': text[:200]}
      events.append(event)
  return events[-_MOST:]


def _seconds(stamp: re.Match[str], began: float) -> float:
  """Returns the time of a log line. Its year is the one in which it is not before the run's start."""
  year = time.localtime(began).tm_year if began == began else time.localtime().tm_year
  month, day, hour, minute, second = map(int, stamp.groups())
  when = time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
  if when < began - 86400:
    when = time.mktime((year + 1, month, day, hour, minute, second, 0, 0, -1))
  return when
