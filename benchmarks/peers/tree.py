"""Every process of a run, however they are related, known by a variable in their environment."""

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
# How often none has to be seen, and the pause between.
_UNSEEN = 3
_PAUSE_SECONDS = 0.1


class Use(NamedTuple):
  """What the processes of a run use.

  Attributes:
    memory: bytes: what a process has alone, and its share of what several have together (PSS).
    cpu: seconds, since each of them began.
    processes: how many they are.
  """

  memory: int
  cpu: float
  processes: int


class Tree:
  """The processes that have been started with `variables` in their environment, and theirs."""

  def __init__(self) -> None:
    self._mark = uuid.uuid4().hex
    self.variables = {_VARIABLE: self._mark}

  def processes(self) -> list[psutil.Process]:
    """Returns those that run now."""
    found = []
    for process in psutil.process_iter():
      with contextlib.suppress(psutil.Error, OSError):
        if process.environ().get(_VARIABLE) == self._mark:
          found.append(process)
    return found

  def use(self) -> Use:
    """Measures them."""
    memory, cpu, processes = 0, 0.0, 0
    for process in self.processes():
      with contextlib.suppress(psutil.Error, OSError):
        memory += process.memory_full_info().pss
        cpu += costs.cpu_seconds(process)
        processes += 1
    return Use(memory, cpu, processes)

  def kill(self) -> None:
    """Ends all of them at once.

    Raises:
      AssertionError: if some are still there after a while.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    unseen = 0
    # A process that is just being started cannot be told yet.
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
  """Yields a tree; kills it when the block is left, however it is left."""
  tree = Tree()
  try:
    yield tree
  finally:
    tree.kill()
