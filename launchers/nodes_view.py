"""The view of a program without our monitor: what its nodes do, from their heartbeats."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from rich.table import Table

from rundir import node_files

# A group of more nodes has a row for each activity of theirs, not for each node.
_ROWS_OF_GROUP = 16
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
  """Returns a table with a row for each node; for each activity, of a group of more than 16 nodes.

  The row of an activity has its longest duration, and the sums of the rest.

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
  for name, nodes in _rows(beats):
    mine = [beats[node] for node in nodes]
    table.add_row(
      name,
      mine[0].doing,
      clock(max(beat.seconds for beat in mine)),
      f'{sum(beat.cpu_seconds for beat in mine):,.0f}',
      f'{sum(beat.memory_mib for beat in mine):,.0f}',
      str(sum(restarts.get(node, 0) for node in nodes) or '-'),
    )
  return table


def _rows(beats: Mapping[str, Doing]) -> Iterator[tuple[str, Sequence[str]]]:
  """Yields the name and the nodes of each row; of large groups, what most nodes do comes first."""
  for group, nodes in node_files.by_group(sorted(beats)).items():
    if len(nodes) <= _ROWS_OF_GROUP:
      yield from ((node, [node]) for node in nodes)
      continue
    by_activity: dict[str, list[str]] = {}
    for node in nodes:
      by_activity.setdefault(beats[node].doing, []).append(node)
    for some in sorted(by_activity.values(), key=len, reverse=True):
      yield f'{group} x {len(some):,}', some
