"""Writes what a sweep has found so far: its tables and the figure of its learning curves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rundir import curves, files, sweep_directory
from sweeps import bands, table
from sweeps.bands import Band
from sweeps.spec import Sweep
from sweeps.table import Row

_DRAWN = 10  # Most trials of the figure: its colours.
_FIGURE = 'curves.svg'


def write(
  sweep: Sweep,
  directory: str,
  trials: Sequence[tuple[int, Mapping[str, Any]]],
  with_figure: bool = True,
) -> list[Row]:
  """Writes `table.csv`, `table.md` and, if asked for, `curves.svg` into the directory of a sweep.

  Args:
    sweep: the sweep.
    directory: of the sweep.
    trials: the numbers and flags of its trials.
    with_figure: whether to draw the learning curves.

  Returns:
    The trials, best first.

  Raises:
    OSError: a file cannot be written.
  """
  rows = table.ranked(sweep, directory, trials)
  drawn = _figure(sweep, directory, rows) if with_figure else None
  if drawn is not None:
    _write(directory, _FIGURE, drawn)
  figure = _FIGURE if os.path.exists(os.path.join(directory, _FIGURE)) else ''
  text = '\n'.join(table.page(sweep, rows, figure)).rstrip() + '\n'
  _write(directory, 'table.md', text.encode())
  _write(directory, 'table.csv', table.as_csv(sweep, rows).encode())
  return rows


def _write(directory: str, name: str, content: bytes) -> None:
  path = os.path.join(directory, name)
  with files.replacing(path, files.own_partial(path)) as file:  # --table_only may write meanwhile.
    file.write(content)


def _figure(sweep: Sweep, directory: str, rows: Sequence[Row]) -> bytes | None:
  """Returns the learning curves of the best trials as an SVG file; None without any curve."""
  from sweeps import figures  # Matplotlib takes a second to import.

  lines = []
  for colour, row in enumerate(rows[:_DRAWN]):
    band = _band(directory, row)
    if band is not None:
      lines.append(figures.Line(table.label(sweep, row), colour, False, band))
  if not lines:
    return None
  best = f', the best {_DRAWN} of {len(rows)} trials' if len(rows) > _DRAWN else ''
  return figures.draw(f'{sweep.title}{best}', lines, [])


def _band(directory: str, row: Row) -> Band | None:
  """Returns the mean curve of the seeds that are done: evaluations, or else training returns."""
  found = []
  for run in row.runs:
    if run.done:
      run_dir = sweep_directory.run_dir(directory, row.number, run.seed)
      points = curves.evaluator_returns(run_dir) or curves.training_returns(run_dir)
      found.append(([point[0] for point in points], [point[1] for point in points]))
  return bands.band(found)
