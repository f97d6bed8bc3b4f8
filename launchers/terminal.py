"""What a launcher shows of a running program, and keeps of it in the run directory."""

from __future__ import annotations

import contextlib
import csv
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import IO

import launchpad as lp

from launchers.follow import Follower
from launchers.heartbeat import Beat
from launchers.supervise import RunCallbacks
from launchers.view import View
from rundir import run_directory

_PROCESSES = 'processes.csv'
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
)


def say(sentence: str, file: IO[str] | None = None) -> None:
  """Prints a sentence, to stdout if `file` is None; a terminal that has gone misses it."""
  with contextlib.suppress(OSError, ValueError):
    print(sentence, file=file, flush=True)


def ensure_streams() -> None:
  """Gives a process that was started without stdout or stderr the null device for them."""
  for name in ('stdout', 'stderr'):
    if getattr(sys, name) is None:
      setattr(sys, name, open(os.devnull, 'w'))  # noqa: SIM115  is open as long as the process


def flush() -> None:
  """Flushes stdout and stderr, as far as somebody still reads them."""
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, ValueError):
      stream.flush()


@contextlib.contextmanager
def shown(program: lp.Program, title: str, run_dir: str) -> Iterator[RunCallbacks]:
  """Shows a program in the terminal while it is supervised, and keeps what it says in its directory.

  `launcher.json` says which process supervises it; `processes.csv` gets what each node does, and
  its memory, every 30 seconds; `restarts.csv` gets each restart.

  Args:
    program: the graph.
    title: of the view.
    run_dir: its directory.

  Yields:
    What the supervision calls.
  """
  follower = Follower(program)
  view = View(follower, title)
  processes = _Processes(os.path.join(run_dir, _PROCESSES))

  def started() -> None:
    run_directory.note_launcher(run_dir)
    follower.start()
    view.start()

  def restarted(node: str) -> None:
    view.restarted(node)
    run_directory.note_restart(run_dir, node)

  def beats(beats: Mapping[str, Beat]) -> None:
    view.beats(beats)
    processes.note(beats)

  try:
    yield RunCallbacks(started, restarted, beats)
  finally:
    view.close()
    follower.close()
    run_directory.forget_launcher(run_dir)


class _Processes:
  """Adds rows to `processes.csv`."""

  def __init__(self, path: str):
    self._path = path
    self._due = 0.0

  def note(self, beats: Mapping[str, Beat]) -> None:
    """Adds a row for each node, if it is time. A full disk loses rows."""
    if time.monotonic() < self._due:
      return
    self._due = time.monotonic() + _PERIOD_SECONDS
    with contextlib.suppress(OSError), open(self._path, 'a', newline='') as f:
      writer = csv.writer(f)
      if not f.tell():
        writer.writerow(_COLUMNS)
      for node, beat in sorted(beats.items()):
        figures = (getattr(beat, name) for name in _COLUMNS[2:])
        writer.writerow([f'{time.time():.1f}', node, *figures])
