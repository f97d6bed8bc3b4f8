"""Cleans up once the launcher of nodes has exited: `python -m launchers.guard MARK [DIRECTORY]`.

It kills the children of nodes, and removes a temporary directory. With one it is no child of the
launcher, because Ray kills the children of a worker that exits.

A node dies with its launcher, but its children do not: the simulator of an environment, the workers of
a vectorised one. Children inherit an environment variable of their node, which identifies them in any
session and under any parent. This module uses only the standard library, because
`launchers.ray.machines` sends it to machines by value.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

VARIABLE = 'LAUNCHPOD_PROCESS'
_SWEEPS = 20


def marked(mark: str) -> Iterator[int]:
  """Yields the ids of processes whose variable starts with `mark`; zombies have no variables."""
  wanted = f'{VARIABLE}={mark}'.encode()
  for name in os.listdir('/proc'):
    if name.isdecimal() and int(name) != os.getpid():
      with contextlib.suppress(OSError), open(f'/proc/{name}/environ', 'rb') as f:
        if any(variable.startswith(wanted) for variable in f.read().split(b'\0')):
          yield int(name)


def sweep(mark: str) -> None:
  """Kills every process whose variable starts with `mark`, and children that they start meanwhile."""
  for _ in range(_SWEEPS):
    found = list(marked(mark))
    for pid in found:
      with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    if not found:
      return
    time.sleep(0.01)


@contextlib.contextmanager
def swept() -> Iterator[None]:
  """Kills, on exit, every descendant that this process has started inside the context."""
  mark = f'{os.urandom(8).hex()};'
  inherited = os.environ.get(VARIABLE)  # Of a command that runs launch.py, such as sweep.py.
  earlier = _children()
  os.environ[VARIABLE] = mark
  try:
    yield
  finally:
    del os.environ[VARIABLE]
    if inherited is not None:
      os.environ[VARIABLE] = inherited
    for pid in _children() - earlier:  # A plain fork does not show the new variable.
      with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    sweep(mark)


def _children() -> set[int]:
  found: set[int] = set()
  for thread in os.listdir('/proc/self/task'):
    with contextlib.suppress(OSError), open(f'/proc/self/task/{thread}/children') as f:
      found |= set(map(int, f.read().split()))
  return found


class Guard:
  """A process that sweeps, and removes a directory, after this process has ended for any reason.

  Attributes:
    mark: prefix of the variable of the nodes' processes.
  """

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
    self.mark = os.urandom(8).hex()
    inherited = {k: v for k, v in os.environ.items() if k != VARIABLE}
    self._process = subprocess.Popen(
      [python, '-S', '-m', 'launchers.guard', self.mark, *([directory] if directory else [])],
      env={**inherited, 'PYTHONPATH': python_path},
      stdin=subprocess.PIPE,  # Reaches end of file when this process exits.
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      cwd=cwd,
      start_new_session=True,
    )
    self._directory = directory
    if directory:
      self._process.wait()  # It has then detached itself.

  def close(self) -> None:
    """Sweeps and removes the directory now, and ends the guard process."""
    sweep(self.mark)
    assert self._process.stdin is not None
    self._process.stdin.close()
    self._process.wait()
    if self._directory:
      shutil.rmtree(self._directory, ignore_errors=True)


def main(mark: str, *directories: str) -> None:
  """Waits for end of file on stdin, then sweeps and removes the directories."""
  for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
  if directories and os.fork():
    os._exit(0)
  while os.read(0, 1):
    pass
  sweep(mark)
  for directory in directories:
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
