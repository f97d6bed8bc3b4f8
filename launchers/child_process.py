"""Starts and signals the process of a node.

This module and those of ours that it imports use only the standard library, because
`launchers.ray.machines` sends them to machines by value.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Protocol

from environments import entry
from launchers import guard, heartbeat

# `NodeProcess.exit_code` of a node that exited with code 0 before its work returned.
EXITED_EARLY = 250


class Child(Protocol):
  """A process that has been started, such as a `subprocess.Popen`."""

  pid: int

  def poll(self) -> int | None:
    """Returns None while it runs, then its exit code; -N if signal N killed it."""

  def wait(self) -> int:
    """Waits for it to end; returns its exit code."""


# Takes the command of a node, all of its variables, the descriptors of its log and of its heartbeat, its
# mark, and its working directory or None.
Start = Callable[[Sequence[str], Mapping[str, str], tuple[int, int], int, str | None], Child]


def execute(
  command: Sequence[str],
  environment: Mapping[str, str],
  descriptors: tuple[int, int],
  mark: int,
  cwd: str | None,
) -> Child:
  """Starts a node's process; see `Start`."""
  log, beats = descriptors
  process = subprocess.Popen(
    command,
    env={**environment, heartbeat.VARIABLE: str(beats), entry.PARENT_VARIABLE: str(os.getpid())},
    stdin=subprocess.DEVNULL,
    stdout=log,
    stderr=subprocess.STDOUT,
    cwd=cwd,
    pass_fds=[beats],
    start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only.
  )
  guard.put(mark, process.pid)  # It starts no process in its first milliseconds.
  return process


class NodeProcess:
  """The process of one incarnation of a node. It dies with the thread that starts it.

  Its descendants are killed when it exits: the rest of its process group, and every process with its
  mark.

  Attributes:
    pid: process id; the process leads its process group.
  """

  def __init__(
    self,
    python: str,
    payload: str,
    environment: Mapping[str, str],
    log: IO[bytes],
    mark: int,
    cwd: str | None = None,
    start: Start = execute,
  ):
    """Starts the process.

    Args:
      python: the interpreter.
      payload: path of the file with the node's pickled function.
      environment: all of its variables; `launchers` must be importable from PYTHONPATH.
      log: the file that receives its output.
      mark: of a `guard.Guard`, for this process alone.
      cwd: its working directory; None for that of the caller.
      start: starts it.
    """
    self._mark = mark
    self._ended = False
    self._ending = threading.Lock()
    beats, beat_here = os.pipe()
    try:
      self._child = start(
        entry.command(python, 'launchers.node_entry', payload),
        {**environment, 'PYTHONUNBUFFERED': '1'},
        (log.fileno(), beat_here),
        mark,
        cwd,
      )
    except BaseException:
      os.close(beats)
      raise
    finally:
      os.close(beat_here)
    self._beats = beats
    self.pid = self._child.pid
    self._listener = heartbeat.Listener(heartbeat.pipe_reader(beats))

  def exit_code(self) -> int | None:
    """Returns None while it runs; EXITED_EARLY if it exited with code 0 before its work returned."""
    code = self._child.poll()
    if code is None:
      return None
    with self._ending:
      if not self._ended:
        self._end()
    beat = self._listener.beat
    return EXITED_EARLY if code == 0 and not (beat and beat.returned) else code

  def _end(self) -> None:
    """Kills the remaining children of the node."""
    with contextlib.suppress(OSError):  # The group lasts as long as a process is in it.
      os.killpg(self.pid, signal.SIGKILL)
    guard.sweep(range(self._mark, self._mark + 1))
    self._listener.poll()
    os.close(self._beats)
    self._ended = True

  def beat(self) -> tuple[heartbeat.Beat | None, float]:
    """Returns the latest heartbeat, None before the first, and its age in seconds."""
    with self._ending:
      if not self._ended:
        self._listener.poll()
    return self._listener.beat, self._listener.age()

  def is_stopped(self) -> bool:
    """Returns whether a signal such as SIGSTOP has stopped the process."""
    with contextlib.suppress(OSError), open(f'/proc/{self.pid}/stat') as f:
      return f.read().rpartition(')')[2].split()[0] in ('T', 't')  # The latter under a debugger.
    return False

  def wait(self) -> None:
    """Waits for the process to exit."""
    self._child.wait()

  def send(self, number: int | signal.Signals) -> None:
    """Signals the process, if it still runs, and its group."""
    if self._child.poll() is None:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self.pid, number)
