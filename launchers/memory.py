"""Detects out-of-memory kills by the kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from launchers.heartbeat import Beat


class Kills:
  """Tells whether the kernel has killed a process to free memory about when a node was killed.

  It compares the kernel's count at the end of the node with that at its last heartbeats. The count is of
  kills in the launcher's memory control group, in which its nodes run, whatever limit was reached.
  Without a control group it is of kills on the machine.
  """

  def __init__(self, proc: str = '/proc', cgroups: str = '/sys/fs/cgroup'):
    """Reads the count for the first time.

    Args:
      proc: where the process information file system is.
      cgroups: where the control groups are.
    """
    self._proc, self._cgroups = proc, cgroups
    self._beat: Beat | None = None
    # At the last heartbeat but one, and at the last: that one may come after the kill.
    self._counts = (self._count(),) * 2

  def look(self, beat: Beat | None) -> None:
    """Receives the node's latest heartbeat; called often."""
    if beat is not self._beat:
      self._beat, self._counts = beat, (self._counts[1], self._count())

  def explain(self) -> str:
    """Returns the end of a sentence about a killed node; '' if the kernel has killed no process."""
    if self._count() <= self._counts[0]:
      return ''
    held = f' when it held {self._beat.memory_mib:,.0f} MiB' if self._beat is not None else ''
    return (
      f'{held}, and the kernel has killed a process to free memory: use fewer or smaller '
      'environments, batches or replay, or more memory'
    )

  def _count(self) -> int:
    for path in self._paths():
      with contextlib.suppress(OSError), open(path) as f:
        for line in f:
          name, _, value = line.partition(' ')
          if name == 'oom_kill':
            return int(value)
    return 0

  def _paths(self) -> Iterator[str]:
    """Yields the files with a count, the most specific first. A container may see only its own group."""
    with contextlib.suppress(OSError), open(f'{self._proc}/self/cgroup') as f:
      for line in f:
        _, controllers, group = line.rstrip('\n').split(':', 2)
        if not controllers:
          yield from (f'{self._cgroups}{place}/memory.events' for place in (group, ''))
        elif 'memory' in controllers.split(','):
          yield from (f'{self._cgroups}/memory{place}/memory.oom_control' for place in (group, ''))
    yield f'{self._proc}/vmstat'
