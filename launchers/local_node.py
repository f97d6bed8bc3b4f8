"""A node whose process is a child of the process that supervises it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from launchers import binding, memory
from launchers.child_process import NodeProcess, Start, execute
from launchers.guard import Guard
from launchers.heartbeat import Beat
from launchers.placement import Resources
from launchers.watched import describe_exit
from nodes.runtime.lifecycle import RESTART_COUNT_VARIABLE


class LocalNode:
  """A node that runs in a child process; a `watched.Node`."""

  def __init__(
    self,
    task: binding.NodeTask,
    resources: Resources,
    log_path: str,
    guard: Guard,
    variables: Mapping[str, str],
    start: Start = execute,
  ):
    """Starts the process.

    Args:
      task: the node.
      resources: of its group; their restart policy and their interpreter count.
      log_path: receives its output.
      guard: kills what its processes leave.
      variables: what its environment has besides this process's.
      start: starts a process.
    """
    self.name = task.name
    self.log_path = log_path
    self.resources = resources
    self._payload = task.payload
    self._guard = guard
    self._variables = variables
    self._start = start
    self._starts = 0
    self.restart()

  def can_restart(self) -> bool:
    """Returns True: this machine can start another process."""
    return True

  def restart(self) -> None:
    """Starts the process, or another after its exit."""
    environment = {
      **os.environ,
      **self._variables,
      **binding.import_variables(self.resources),
      RESTART_COUNT_VARIABLE: str(self._starts),
    }
    self._kills = memory.Kills()
    with open(self.log_path, 'ab') as log:
      self._process = NodeProcess(
        binding.interpreter_of(self.resources),
        self._payload,
        environment,
        log,
        self._guard.mark(),
        start=self._start,
      )
    self._starts += 1

  def exit_code(self) -> int | None:
    """Returns None while the process runs; -N if signal N killed it."""
    return self._process.exit_code()

  def ending(self) -> str:
    """Returns how the process ended."""
    code = self._process.exit_code()
    assert code is not None
    return describe_exit(code) + (self._kills.explain() if code == -signal.SIGKILL else '')

  def beat(self) -> tuple[Beat | None, float]:
    """Returns the latest heartbeat and its age in seconds."""
    beat, age = self._process.beat()
    self._kills.look(beat)
    return beat, age

  def is_stopped(self) -> bool:
    """Returns whether the process is stopped, as by SIGSTOP."""
    return self._process.is_stopped()

  def send(self, number: int) -> None:
    """Signals the process and its children."""
    self._process.send(number)
