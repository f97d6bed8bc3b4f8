"""Shows the figures and curves of runs on a terminal."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import plotext
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from launchers import nodes_view, streams, view
from rundir import run_directory
from viewing import population, progress
from viewing.progress import Progress

_HEIGHT = 16  # Height of the curves, in lines.
_LEAST_HEIGHT = 8
_POINTS = 400  # Most points of a curve; more than the columns of a terminal.
# Most runs that have a column each; more have a row each, with these figures.
_BESIDE = 4
_IN_ROWS = ('progress', 'steps/s', 'episode_return', 'evaluator_return')
_COLOURS = ('blue+', 'orange+', 'green+', 'red+', 'magenta+', 'cyan+')


def show(runs: Sequence[Progress], console: Console) -> RenderableType:
  """Returns tables and curves of some runs, sized to fit a live terminal if possible.

  Args:
    runs: the runs; a sweep may have none yet.
    console: the console that shows them.
  """
  if not runs:
    return Text('no run has begun')
  if len(runs) > _BESIDE:
    table: RenderableType = _one_below_another(list(runs))
  else:
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
  running_first = sorted(runs, key=lambda run: run.state != progress.RUNNING)
  for i, run in enumerate(running_first[: len(_COLOURS)]):
    # Several runs show one curve each: the evaluator's if it exists.
    kinds = [('training', run.training), ('evaluator', run.evaluation)]
    kinds = [(kind, rows) for kind, rows in kinds if rows]
    for j, (kind, rows) in enumerate(kinds[-1:] if len(runs) > 1 else kinds):
      frames, returns = _thin([row[0] for row in rows]), _thin([row[1] for row in rows])
      label = streams.printable(f'{run.name}, {kind}') if len(runs) > 1 else kind
      plotext.plot(frames, returns, label=label, color=_COLOURS[(i + j) % len(_COLOURS)])
      drawn = True
  if not drawn:
    return ''
  plotext.xlabel('environment frames')
  some = f', {len(_COLOURS)} of {len(runs)} runs' if len(runs) > len(_COLOURS) else ''
  plotext.title(f'episode return (raw){some}')
  return plotext.build()


def line(run: Progress) -> str:
  """Returns the figures of a run in one line."""
  if run.status:
    figures = view.as_line(run.status)
  elif run.reports:
    figures = 'starting'
  else:
    figures = nodes_view.as_line(run.processes.latest, sum(_restarts(run).values()))
  return f'{run.name}: {figures}' if run.state == progress.RUNNING else f'{run.name}: {run.state}'


def _alone(run: Progress) -> RenderableType:
  env = run.config.get('env', '')
  title = f'{run.program}{env and f" on {env}"}  {run.run_dir}  ({run.state})'
  if run.status:
    figures, members = view.as_table(title, run.status), population.table(run.run_dir)
    return Group(figures, members) if members else figures
  if run.reports or not run.processes.latest:
    return Text(title if run.state == progress.ENDED else f'{title}: starting')
  return nodes_view.as_table(title, run.processes.latest, _restarts(run))


def _restarts(run: Progress) -> dict[str, int]:
  return collections.Counter(node for _, node in run_directory.restart_times(run.run_dir))


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


def _one_below_another(runs: list[Progress]) -> Table:
  """Returns a table with a row per run: the options that differ, then the figures of its progress."""
  differing = progress.differences(runs)
  figures = [dict(view.figures(run.status)) if run.status else {} for run in runs]
  shown = [name for name in _IN_ROWS if any(name in found for found in figures)]
  table = Table()
  for title in ('run', 'state', *(f'--{name}' for name in differing), *shown):
    table.add_column(title, justify='left' if title == 'run' else 'right', overflow='fold')
  for i, run in enumerate(runs):
    options = (values[i] for values in differing.values())
    table.add_row(run.name, run.state, *options, *(figures[i].get(name, '-') for name in shown))
  return table


def _thin(values: list[float]) -> list[float]:
  """Returns at most `_POINTS` evenly spaced values, including the last."""
  step = -(-len(values) // _POINTS)
  return values[::-1][::step][::-1]
