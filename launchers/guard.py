"""Cleans up once the launcher of nodes has exited: the module is run with MARKS [DIRECTORY].

It kills the descendants of nodes, and removes a temporary directory. With one it is no child of the
launcher, because Ray kills the children of a worker that exits.

A node dies with its launcher, but its children do not: the simulator of an environment, the workers of
a vectorised one. They may have a session, environment variables and a parent of their own. What every
process keeps of the one that started it are its resource limits, so a limit without effect marks a node
and its descendants: the soft limit of the CPU time of real-time threads, in microseconds, at a number
of tens of thousands of years. This module uses only the standard library, because
`launchers.ray.machines` sends it to machines by value.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

from environments import entry

_LIMIT, _LIMIT_NAME = resource.RLIMIT_RTTIME, b'Max realtime timeout'
_MARKS = 1 << 20  # Of one `Guard`.
_SWEEPS = 20


def new_marks() -> range:
  """Returns marks that no other process on this machine has, with high probability."""
  first = (1 << 61) + random.SystemRandom().randrange(1 << 40) * _MARKS
  return range(first, first + _MARKS)


def put(mark: int, pid: int = 0) -> None:
  """Marks a process, and those that it starts from now on.

  Where the system limits the CPU time of real-time threads there are no marks, and processes outside
  the process group of a node are not found.

  Args:
    mark: of `new_marks`.
    pid: the process; 0 for this one.
  """
  _, hard = resource.getrlimit(_LIMIT)
  with contextlib.suppress(OSError, ValueError):
    resource.prlimit(pid, _LIMIT, (mark, hard))


def marked(marks: range) -> Iterator[int]:
  """Yields the ids of other processes with one of some marks, those that have ended included."""
  for name in os.listdir('/proc'):
    if name.isdecimal() and int(name) != os.getpid():
      with contextlib.suppress(OSError), open(f'/proc/{name}/limits', 'rb') as f:
        soft = next((line.split()[3] for line in f if line.startswith(_LIMIT_NAME)), b'')
        if soft.isdigit() and int(soft) in marks:
          yield int(name)


def _is_zombie(pid: int) -> bool:
  """Returns whether a process has ended, and waits for its parent to ask how."""
  try:
    with open(f'/proc/{pid}/stat', 'rb') as f:
      return f.read().rpartition(b')')[2].split()[:1] == [b'Z']
  except OSError:
    return True


def sweep(marks: range) -> None:
  """Kills every other process with one of some marks, and children that they start meanwhile."""
  for _ in range(_SWEEPS):
    found = list(marked(marks))
    for pid in found:
      with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    if all(map(_is_zombie, found)):
      return
    time.sleep(0.01)


@contextlib.contextmanager
def swept() -> Iterator[None]:
  """Kills, on exit, every descendant that this process has started inside the context."""
  marks = new_marks()
  earlier, _ = resource.getrlimit(_LIMIT)  # A mark, if a command such as sweep.py runs launch.py.
  put(marks[0])
  try:
    yield
  finally:
    put(earlier)
    sweep(marks)


class Guard:
  """A process that sweeps, and removes a directory, after this process has ended for any reason."""

  def __init__(
    self, python: str, python_path: str, cwd: str | None = None, directory: str | None = None
  ):
    """Starts the process.

    Args:
      python: the interpreter.
      python_path: a PYTHONPATH from which `launchers` can be imported.
      cwd: its working directory; None for that of this process.
      directory: the directory to remove; None for none.
    """
    self._marks = new_marks()
    self._unused = itertools.count(self._marks.start)
    self._process = subprocess.Popen(
      entry.command(
        python,
        'launchers.guard',
        *(str(self._marks.start), str(self._marks.stop)),
        *([directory] if directory else []),
        options=('-S',),
      ),
      env={**os.environ, 'PYTHONPATH': python_path},
      stdin=subprocess.PIPE,  # Reaches end of file when this process exits.
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      cwd=cwd,
      start_new_session=True,
    )
    self._directory = directory
    if directory:
      self._process.wait()  # It has then detached itself.

  def mark(self) -> int:
    """Returns a mark for one process and its descendants; each call returns another."""
    return next(self._unused)

  def close(self) -> None:
    """Sweeps and removes the directory now, and ends the guard process."""
    sweep(self._marks)
    assert self._process.stdin is not None
    self._process.stdin.close()
    self._process.wait()
    if self._directory:
      shutil.rmtree(self._directory, ignore_errors=True)


def main(argv: list[str]) -> None:
  """Waits for end of file on stdin, then sweeps the marks and removes the directories.

  Args:
    argv: the name of the program, the first mark, the end of the marks, and directories.
  """
  _, start, stop, *directories = argv
  for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
  if directories and os.fork():
    os._exit(0)
  while os.read(0, 1):
    pass
  sweep(range(int(start), int(stop)))
  for directory in directories:
    shutil.rmtree(directory, ignore_errors=True)
