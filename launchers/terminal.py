"""Shows a running program in the launcher's terminal, and records it in the run directory."""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Callable, Iterator, Mapping

import launchpad as lp

from launchers.follow import Follower
from launchers.heartbeat import Beat
from launchers.node_output import FILES, TERMINAL, NodeOutput, logs_of
from launchers.supervise import RunCallbacks
from launchers.view import View
from rundir import graph_file, run_directory

_PERIOD_SECONDS = 30.0
_COLUMNS = (
  'time',
  'node',
  'doing',
  'seconds',
  'memory_mib',
  'cpu_seconds',
  'open_files',
  'threads',
  'host',
  'idle_seconds',
)


@contextlib.contextmanager
def shown(
  program: lp.Program,
  title: str,
  run_dir: str,
  node_output: str = FILES,
  accepted: Callable[[], object] = lambda: None,
  slurm_job: str = '',
) -> Iterator[RunCallbacks]:
  """Shows a program in the terminal while it is supervised, and records it in its run directory.

  `launcher.json` names the supervising process. `processes.csv` receives the activity, memory
  and machine of each node every 30 seconds. `restarts.csv` receives each restart.

  Args:
    program: the graph.
    title: title of the view.
    run_dir: the run directory.
    node_output: FILES; or TERMINAL to show the output of the nodes instead of a live table.
    accepted: as in `RunCallbacks`.
    slurm_job: as in `run_directory.record_launcher`.

  Yields:
    The callbacks for the supervision.
  """
  follower = Follower(program)
  output = NodeOutput(logs_of(program, run_dir)) if node_output == TERMINAL else None
  config, graph = run_directory.config_of(run_dir), graph_file.read(run_dir)
  view = View(follower, title, config, graph, live=output is None)
  parts: list[View | NodeOutput] = [output] if output is not None else []
  if (
    output is None or follower.has_monitor
  ):  # Else lines of the view would only interrupt the nodes'.
    parts.append(view)
  processes = _Processes(run_directory.processes_path(run_dir))

  def started() -> None:
    run_directory.record_launcher(run_dir, slurm_job)
    follower.start()
    for part in parts:
      part.start()

  def restarted(node: str) -> None:
    view.restarted(node)
    run_directory.record_restart(run_dir, node)

  def beats(beats: Mapping[str, Beat]) -> None:
    view.beats(beats)
    processes.note(beats)

  def ended() -> None:
    for part in parts:
      part.close()

  try:
    yield RunCallbacks(accepted, started, restarted, beats, ended)
  finally:
    run_directory.delete_launcher(run_dir)
    ended()
    follower.close()


class _Processes:
  """Adds rows to `processes.csv`."""

  def __init__(self, path: str):
    self._path = path
    self._due = 0.0

  def note(self, beats: Mapping[str, Beat]) -> None:
    """Adds a row for each node, at most every 30 seconds. Drops rows if the disk is full."""
    if not beats or time.monotonic() < self._due:
      return
    self._due = time.monotonic() + _PERIOD_SECONDS
    with contextlib.suppress(OSError), open(self._path, 'a', newline='') as f:
      writer = csv.writer(f)
      if not f.tell():
        writer.writerow(_COLUMNS)
      for node, beat in sorted(beats.items()):
        figures = (getattr(beat, name) for name in _COLUMNS[2:])
        writer.writerow([f'{time.time():.1f}', node, *figures])
