"""Cells of the page's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers.reports import shown, spread
from benchmarks.results import measures
from benchmarks.results.declared import Entry
from benchmarks.results.records import Record
from sweeps import bootstrap
from sweeps.cells import NONE, estimate

NOT_RUN = 'not run'


def final_return(records: Sequence[Record]) -> str:
  """Returns the mean of the final returns over seeds, with its interval."""
  if not records:
    return NOT_RUN
  return estimate(bootstrap.estimate([np.array([r.final['mean'] for r in records])]))


def seeds(entry: Entry, records: dict[int, Record]) -> str:
  """Returns how many of the declared seeds have a record, and which if not all do."""
  text = f'{len(records)} of {len(entry.row.seeds)}'
  some = 0 < len(records) < len(entry.row.seeds)
  return text + (f': {", ".join(map(str, records))}' if some else '')


def to_threshold(records: Sequence[Record], threshold: float) -> tuple[str, str]:
  """Returns the frames and the wall seconds to a return, medians and ranges over the seeds.

  Both are bounds, marked by ≤, if one of the evaluations is late; see `measures.Reached`.
  """
  if not records:
    return NONE, NONE
  found = [measures.reached(record.curve, threshold) for record in records]
  runs = [
    {
      'frames': None if when is None else when.environment_frames,
      'seconds': None if when is None else when.seconds,
    }
    for when in found
  ]
  if not any(found):
    return 'not reached', 'not reached'
  bound = '≤ ' if any(when and when.late for when in found) else ''
  frames, seconds = (shown(spread(runs, name), len(runs)) for name in ('frames', 'seconds'))
  return bound + frames, bound + seconds


def rate(records: Sequence[Record]) -> str:
  """Returns the steps/s, median and range over the seeds."""
  return shown(spread([record.totals for record in records], 'steps_per_second'), len(records))


def load(records: Sequence[Record]) -> str:
  """Returns the range of the load averages before the runs."""
  loads = sorted(a['load_at_start'] for record in records for a in _attempts(record))
  if not loads:
    return NONE
  return f'{loads[0]:.1f}' if loads[0] == loads[-1] else f'{loads[0]:.1f} to {loads[-1]:.1f}'


def commits(records: Sequence[Record]) -> str:
  """Returns the commits that the runs were made with; + marks a working tree with changes."""
  found = {
    f'`{code["commit"][:7] or "unknown"}{"+" if code["modified"] else ""}`'
    for record in records
    for code in (*(attempt['code'] for attempt in _attempts(record)), record.final.get('code'))
    if code is not None
  }
  return ', '.join(sorted(found)) or NONE


def jax_versions(records: Sequence[Record]) -> str:
  """Returns the versions of JAX that the runs were made with."""
  return ', '.join(sorted({record.versions.get('jax', NONE) for record in records})) or NONE


def _attempts(record: Record) -> list[dict[str, Any]]:
  """Returns the commands that made a run, without those that failed before its first step."""
  return [a for a in record.attempts if a['start_up'] is not None] or record.attempts
