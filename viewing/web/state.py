"""The state of some runs, as the live page shows it: plain values for JSON."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shlex
import time
from collections.abc import Sequence
from typing import Any

from environments import user_file
from launchers import bottleneck, logs, view
from rundir import (
  csv_file,
  graph_file,
  node_files,
  reading,
  run_directory,
  run_end,
  secrets,
  videos,
)
from viewing import processes, progress
from viewing.progress import Progress
from viewing.web import boxes, learning
from viewing.web.timeline import Timeline

_POINTS = 300
_CELLS = (
  1024  # Nodes of a group that the page shows one by one; of larger groups it has the counts.
)
_LOG_LINES = 80
_VIDEOS = ('.gif', '.mp4', '.webm')


class State:
  """The state of some runs; `read` returns it, `node` the details of one node.

  A read covers the ends of the logs and what was written since the last read. Its time therefore does
  not grow with the run.
  """

  def __init__(self, run_dirs: Sequence[str]):
    """Reads the runs for the first time.

    Args:
      run_dirs: their directories.

    Raises:
      ValueError: if one is not a run directory; one sentence.
    """
    self._runs = [_Run(run_dir) for run_dir in run_dirs]

  def read(self) -> dict[str, Any]:
    """Returns the state of all runs."""
    runs = [run.read() for run in self._runs]
    shown = [run.progress for run in self._runs]
    return _plain(
      {
        'now': time.time(),
        'runs': runs,
        'differences': progress.differences(shown) if len(shown) > 1 else {},
        'curves': learning.grouped(shown, [run.curve for run in self._runs]),
      }
    )

  def node(self, run: int, node: str) -> dict[str, Any]:
    """Returns the details of a node: its measurements, its process, its log and its restarts.

    Args:
      run: position of the run.
      node: such as 'actor/3'.

    Raises:
      LookupError: if there is no such run or node.
    """
    with reading.without_links(self._runs[run].run_dir):
      return _plain(self._runs[run].node(node))

  def video(self, run: int) -> str:
    """Returns the path of the newest video in a run directory; '' if it has none.

    Raises:
      LookupError: if there is no such run.
    """
    with reading.without_links(self._runs[run].run_dir):
      return _newest_video(self._runs[run].run_dir)


class _Run:
  def __init__(self, run_dir: str):
    run_dir = os.path.abspath(run_dir)
    self.run_dir = run_dir
    with reading.without_links(run_dir):
      self.progress = Progress(run_dir, with_curves=False)
    self.curve = learning.LearningCurve(run_dir)
    self._timeline = Timeline(run_dir)
    self._last: dict[str, Any] = {}

  def read(self) -> dict[str, Any]:
    """Returns what is shown of the run: the last that was seen, if its files cannot be read."""
    try:
      with reading.without_links(self.run_dir):
        self._last = self._read()
    except (OSError, ValueError) as error:
      if not self._last:
        raise
      gone = not os.path.isdir(self.run_dir)
      self._last |= {'state': 'its directory is gone' if gone else str(error), 'video': None}
    return self._last

  def _read(self) -> dict[str, Any]:
    run = self.progress
    run.update()
    self.curve.update()
    graph = graph_file.read(self.run_dir)
    status = run.status or {'means': {}, 'verdict': bottleneck.UNKNOWN}
    seen = run.processes
    figures = bottleneck.utilization(status['means'], run.config, graph, seen.cores_used())
    names = self._nodes(graph)
    states = {
      name: boxes.node(
        status['means'].get(name, {}), figures, seen.latest.get(name), seen.cores_of(name)
      )
      for name in names
    }
    restarts: dict[str, int] = {}
    for _, node in run_directory.restart_times(self.run_dir):
      restarts[node] = restarts.get(node, 0) + 1
    video = _newest_video(self.run_dir)
    return {
      'name': run.name,
      'run_dir': self.run_dir,
      'program': run.program,
      'env': user_file.title(str(run.config.get('env', ''))),
      'state': run.state,
      'result': run_end.result(self.run_dir),
      'figures': [f for f in view.figures(run.status) if f[1] != '-'] if run.status else [],
      'verdict': vars(status['verdict']),
      'cores': [seen.cores_used(), figures.cores],
      'groups': boxes.groups(graph, names, states),
      'edges': boxes.edges(graph, status['means'], run.logs),
      'replay': {
        'fill': figures.replay_fill,
        'capacity': figures.replay_capacity,
        'is_queue': figures.is_queue,
      },
      'nodes': boxes.cells(states, restarts, _CELLS),
      'timeline': self._timeline.read(seen.began),
      'span': [seen.began, max((s.time for s in seen.latest.values()), default=math.nan)],
      'video': os.path.getmtime(video) if video else None,
      'video_name': os.path.relpath(video, self.run_dir) if video else '',
      'options': {name: secrets.shown(name, value) for name, value in run.config.items()},
    }

  def node(self, name: str) -> dict[str, Any]:
    if name not in self._nodes(graph_file.read(self.run_dir)):
      raise LookupError(name)
    columns, rows = csv_file.thinned(node_files.csv_path(self.run_dir, name), _POINTS)
    samples = processes.history(self.run_dir, name)
    shares = [processes.cores(before, after) for before, after in itertools.pairwise(samples)]
    try:
      lines = logs.tail(node_files.log_path(self.run_dir, name), _LOG_LINES)
    except OSError:
      lines = []
    return {
      'name': name,
      'columns': columns,
      'rows': rows,
      'process': vars(samples[-1]) if samples else None,
      'history': {
        'time': [sample.time for sample in samples[1:]],
        'cores': shares,
        'memory_mib': [sample.memory_mib for sample in samples[1:]],
      },
      'restarts': [
        when for when, node in run_directory.restart_times(self.run_dir) if node == name
      ],
      'log': ''.join(lines),
      'stacks': f'python watch.py {shlex.quote(self.run_dir)} --stacks={shlex.quote(name)}',
    }

  def _nodes(self, graph: graph_file.Graph) -> list[str]:
    """Returns the names of all nodes, recorded or seen, in the order of their groups and numbers."""
    groups = [group for group in graph.groups if node_files.is_name(f'{group.name}/0')]
    recorded = [f'{group.name}/{i}' for group in groups for i in range(group.nodes)]
    seen = self.progress.processes.latest.keys() | self.progress.logs.keys()
    seen |= node_files.find(self.run_dir, node_files.LOG).keys() if not recorded else set()
    others = sorted(filter(node_files.is_name, seen - set(recorded)), key=_order)
    return recorded + others


def _newest_video(run_dir: str) -> str:
  """Returns the newest video in a run directory or in a folder of it; '' without one.

  The run's own videos have an order that no clock changes; only the last of them counts.
  """
  own = videos.directory(run_dir)
  folders = [run_dir, *(os.path.join(run_dir, name) for name in reading.names(run_dir))]
  others = [
    os.path.join(folder, name)
    for folder in folders
    if folder != own
    for name in reading.names(folder)
    if name.endswith(_VIDEOS)
  ]
  last = list(filter(reading.is_file, videos.paths(run_dir)))[-1:]
  found = []
  for path in last + list(filter(reading.is_file, others)):
    with contextlib.suppress(FileNotFoundError):  # Old videos are removed meanwhile.
      found.append((os.path.getmtime(path), path))
  return max(found, default=(0.0, ''))[1]


def _order(name: str) -> tuple[str, int, str]:
  label, _, number = name.rpartition('/')
  return label, len(number), name  # Longer numbers are larger.


def _plain(value: Any) -> Any:
  """Returns a value with None for numbers that JSON does not have, and floats of six digits."""
  if isinstance(value, float):
    if not math.isfinite(value):
      return None
    return float(f'{value:.6g}') if abs(value) < 1e6 else round(value, 1)
  if isinstance(value, dict):
    return {str(name): _plain(each) for name, each in value.items()}
  if isinstance(value, (list, tuple)):
    return [_plain(each) for each in value]
  return value
