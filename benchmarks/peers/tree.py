"""All processes of a run, identified by an environment variable, whatever their parents."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import psutil

from benchmarks import costs

_VARIABLE = 'LAUNCHPOD_PEERS_RUN'
_KILL_SECONDS = 20.0
# Number of successive looks that must find no process, and the pause between looks.
_UNSEEN = 3
_PAUSE_SECONDS = 0.1


class Use(NamedTuple):
  """Resource use of the processes of a run.

  Attributes:
    memory: bytes, private memory and the share of shared memory (PSS).
    cpu: CPU seconds since the start of each process.
    processes: number of processes.
  """

  memory: int
  cpu: float
  processes: int


class Tree:
  """The processes started with `variables` in their environment, and their descendants."""

  def __init__(self) -> None:
    self._mark = uuid.uuid4().hex
    self.variables = {_VARIABLE: self._mark}

  def processes(self) -> list[psutil.Process]:
    """Returns the running processes."""
    found = []
    for process in psutil.process_iter():
      with contextlib.suppress(psutil.Error, OSError):
        if process.environ().get(_VARIABLE) == self._mark:
          found.append(process)
    return found

  def use(self) -> Use:
    """Measures the running processes."""
    memory, cpu, processes = 0, 0.0, 0
    for process in self.processes():
      with contextlib.suppress(psutil.Error, OSError):
        memory += process.memory_full_info().pss
        cpu += costs.cpu_seconds(process)
        processes += 1
    return Use(memory, cpu, processes)

  def kill(self) -> None:
    """Kills all processes.

    Raises:
      AssertionError: some processes still run at the deadline.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    unseen = 0
    # A process that is just starting cannot be identified yet.
    while unseen < _UNSEEN:
      living = [process for process in self.processes() if not _is_zombie(process)]
      unseen = 0 if living else unseen + 1
      assert time.monotonic() < deadline, f'cannot be killed: {living}'
      for process in living:
        with contextlib.suppress(psutil.Error):
          process.kill()
      psutil.wait_procs(living, timeout=1.0)
      time.sleep(_PAUSE_SECONDS)


def _is_zombie(process: psutil.Process) -> bool:
  try:
    return process.status() == psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return True


@contextlib.contextmanager
def killed_at_the_end() -> Iterator[Tree]:
  """Yields a tree; kills it at the end of the block, also after an exception."""
  tree = Tree()
  try:
    yield tree
  finally:
    tree.kill()
