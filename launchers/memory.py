"""Detects out-of-memory kills by the kernel."""

from __future__ import annotations

import contextlib

from launchers.heartbeat import Beat

_MACHINE = '/proc/vmstat'
_CGROUP = '/sys/fs/cgroup/memory.events'


class Kills:
  """Detects out-of-memory kills after construction, on this machine and in this control group."""

  def __init__(self) -> None:
    self._before = _count()

  def explain(self, beat: Beat | None) -> str:
    """Returns the end of a sentence about a killed node; '' if the kernel has killed no process.

    Args:
      beat: the node's last heartbeat.
    """
    if _count() <= self._before:
      return ''
    held = f' when it held {beat.memory_mib:,.0f} MiB' if beat is not None else ''
    return (
      f'{held}, and the kernel has killed a process to free memory: use fewer or smaller '
      'environments, batches or replay, or more memory'
    )


def _count() -> int:
  total = 0
  for path in (_MACHINE, _CGROUP):
    with contextlib.suppress(OSError), open(path) as f:
      for line in f:
        name, _, value = line.partition(' ')
        if name == 'oom_kill':
          total += int(value)
  return total
