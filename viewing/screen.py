"""Shows the figures and curves of runs on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import plotext
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from launchers import view
from viewing import progress
from viewing.progress import Progress

_HEIGHT = 16  # Height of the curves, in lines.
_LEAST_HEIGHT = 8
_POINTS = 400  # Most points of a curve; more than the columns of a terminal.
_COLOURS = ('blue+', 'orange+', 'green+', 'red+', 'magenta+', 'cyan+')


def show(runs: Sequence[Progress], console: Console) -> RenderableType:
  """Returns tables and curves of some runs, sized to fit a live terminal if possible.

  Args:
    runs: at least one run.
    console: the console that shows them.
  """
  table = _side_by_side(list(runs)) if len(runs) > 1 else _alone(runs[0])
  height = _HEIGHT
  if console.is_terminal:
    room = console.height - len(console.render_lines(table)) - 2
    height = min(max(room, _LEAST_HEIGHT), _HEIGHT)
  return Group(table, Text.from_ansi(curves(runs, min(console.width, 100), height)))


def curves(runs: Sequence[Progress], width: int, height: int) -> str:
  """Plots episode returns over environment frames as text with ANSI colours; '' without data."""
  plotext.clear_figure()
  plotext.theme('clear')
  plotext.limitsize(False, False)  # Not to the terminal size that it detects.
  plotext.plotsize(width, height)
  drawn = False
  for i, run in enumerate(runs):
    # Several runs show one curve each: the evaluator's if it exists.
    kinds = [('training', run.training), ('evaluator', run.evaluation)]
    kinds = [(kind, rows) for kind, rows in kinds if rows]
    for j, (kind, rows) in enumerate(kinds[-1:] if len(runs) > 1 else kinds):
      frames, returns = _thin([row[0] for row in rows]), _thin([row[1] for row in rows])
      label = f'{run.name}, {kind}' if len(runs) > 1 else kind
      plotext.plot(frames, returns, label=label, color=_COLOURS[(i + j) % len(_COLOURS)])
      drawn = True
  if not drawn:
    return ''
  plotext.xlabel('environment frames')
  plotext.title('episode return (raw)')
  return plotext.build()


def line(run: Progress) -> str:
  """Returns the figures of a run in one line."""
  figures = view.as_line(run.status) if run.status else 'starting'
  return f'{run.name}: {figures}' if run.state == progress.GOING_ON else f'{run.name}: {run.state}'


def _alone(run: Progress) -> RenderableType:
  title = f'{run.program} on {run.config["env"]}  {run.run_dir}  ({run.state})'
  return view.as_table(title, run.status) if run.status else Text(f'{title}: starting')


def _side_by_side(runs: list[Progress]) -> Table:
  """Returns a table with a column per run: the options that differ, then the figures."""
  table = Table()
  table.add_column('')
  for run in runs:
    table.add_column(run.name, justify='right', overflow='fold')
  table.add_row('state', *(run.state for run in runs))
  for name, values in progress.differences(runs).items():
    table.add_row(f'--{name}', *values)
  table.add_section()
  figures = [dict(view.figures(run.status)) if run.status else {} for run in runs]
  for name in dict.fromkeys(name for column in figures for name in column):
    row = [column.get(name, '-') for column in figures]
    if set(row) != {'-'}:
      table.add_row(name, *row)
  return table


def _thin(values: list[float]) -> list[float]:
  """Returns at most `_POINTS` evenly spaced values, including the last."""
  step = -(-len(values) // _POINTS)
  return values[::-1][::step][::-1]
