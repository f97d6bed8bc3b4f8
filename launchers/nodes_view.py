"""The view of a program without our monitor: what its nodes do, from their heartbeats."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Protocol

from rich.table import Table

_CENTURY = 100 * 365.25 * 86400  # Seconds.


class Doing(Protocol):
  """What a process does and uses: a heartbeat, or a sample of `processes.csv`."""

  @property
  def doing(self) -> str:
    """Name of its activity."""

  @property
  def seconds(self) -> float:
    """Duration of the activity so far."""

  @property
  def memory_mib(self) -> float:
    """Memory of its own, in MiB."""

  @property
  def cpu_seconds(self) -> float:
    """CPU time of this incarnation."""


def clock(seconds: float) -> str:
  """Returns a duration in hours, minutes and seconds; '-' if it is not known."""
  if not math.isfinite(seconds):
    return '-'
  if abs(seconds) >= _CENTURY:
    return 'over 100 years'
  return str(datetime.timedelta(seconds=int(seconds)))


def as_line(beats: Mapping[str, Doing], restarts: int) -> str:
  """Returns the number of running nodes and of restarts in one line; 'starting' without a heartbeat."""
  if not beats:
    return 'starting'
  return f'nodes={len(beats)}' + (f' restarts={restarts}' if restarts else '')


def as_table(title: str, beats: Mapping[str, Doing], restarts: Mapping[str, int]) -> Table:
  """Returns a table with a row for each node.

  Args:
    title: its title.
    beats: the latest heartbeat or sample of each node, by name.
    restarts: number of restarts of each node that has restarted.
  """
  table = Table(title=title)
  table.add_column('node')
  table.add_column('doing')
  for name in ('for', 'CPU s', 'MiB', 'restarts'):
    table.add_column(name, justify='right')
  for node, beat in sorted(beats.items()):
    table.add_row(
      node,
      beat.doing,
      clock(beat.seconds),
      f'{beat.cpu_seconds:,.0f}',
      f'{beat.memory_mib:,.0f}',
      str(restarts.get(node, 0) or '-'),
    )
  return table
