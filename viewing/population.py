"""The members of a population, by their lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from rundir import lineage
from rundir.lineage import Event

_MOST = 64  # Members in a table, the best.


def table(run_dir: str) -> Table | None:
  """Returns the members by their last score, the best first; None if a run has no lineage."""
  events = lineage.read(run_dir)
  if not events:
    return None
  last = {event.member: event for event in events}
  names = sorted({name for event in last.values() for name in event.next_values})
  found = Table(title='population')
  for title in ('member', 'score', *names, 'copies', 'continues as'):
    found.add_column(title, justify='right')
  copies = dict.fromkeys(last, 0)
  for event in events:
    copies[event.member] += event.source is not None
  for event in sorted(last.values(), key=_rank)[:_MOST]:
    score = 'not finite' if event.score is None else f'{event.score:.4g}'
    values = (f'{event.next_values[name]:.4g}' for name in names)
    source = 'itself' if event.source is None else f'member/{event.source_member}'
    row = score, *values, str(copies[event.member]), source
    found.add_row(f'member/{event.member}', *row)
  return found


def timeline(run_dir: str, most: int) -> list[dict[str, Any]]:
  """Returns the newest events in which one member continues as another, as the page shows them."""
  return [
    {
      'time': event.time,
      'kind': 'replacement',
      'node': f'member/{event.member}',
      'text': f'member/{event.member} continues as member/{event.source_member}, '
      f'with {_values(event.next_values)}',
    }
    for event in lineage.read(run_dir)
    if event.source is not None
  ][-most:]


def _rank(event: Event) -> tuple[bool, float, int]:
  return event.score is None, -(event.score or 0.0), event.member


def _values(values: Mapping[str, float]) -> str:
  return ', '.join(f'{name} {value:.4g}' for name, value in values.items()) or 'its values'
