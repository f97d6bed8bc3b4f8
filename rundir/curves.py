"""Logs and the learning-curve picture of a run directory."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Collection, Sequence
from typing import Any

from rundir import csv_file, graph_file, node_files, sweep_directory
from rundir.roles import EVALUATOR, LEARNER

# The columns of the curves. For the evaluator, prefer the frame count of the evaluated parameters to
# that of the time of the report.
TRAINING = ('environment_frames', 'episode_return')
_RETURNS = ('evaluator_return', 'evaluator_return_stderr')
EVALUATION = (('evaluated_frames', *_RETURNS), ('environment_frames', *_RETURNS))
_TAIL_BYTES = 1 << 16


def last_second(run_dir: str) -> float:
  """Returns the last time in the logs, in seconds since the run's start; 0 without logs."""
  return last_row(run_dir)['seconds']


def last_row(run_dir: str, *columns: str) -> dict[str, float]:
  """Returns 'seconds' and other columns of the latest row in all logs that has them; or zeros."""
  columns = ('seconds', *columns)
  last: tuple[float, ...] = (0.0,) * len(columns)
  for path in node_files.find(run_dir, node_files.CSV).values():
    reader = csv_file.CsvReader(path)
    reader.skip_to_tail(_TAIL_BYTES)
    rows = reader.read()
    last = max([last, *csv_file.finite(rows, reader.columns, columns)])
  return dict(zip(columns, last, strict=True))


def nodes(run_dir: str, role: str) -> list[str]:
  """Returns the nodes with measurements that have a role, such as 'learner/0'.

  Nodes whose graph does not say what they do follow: their measurements may be those of the role.
  """
  roles_of = functools.cache(graph_file.read(run_dir).roles)
  found = node_files.find(run_dir, node_files.CSV)
  roles = {node: roles_of(node_files.group(node)) for node in found}  # Of thousands of nodes, too.
  declared = [node for node, known in roles.items() if role in known]
  return declared + [node for node, known in roles.items() if not known]


def series(roles: Collection[str]) -> tuple[tuple[str, ...], ...]:
  """Returns the sets of columns of curves that nodes of these roles may report; all without roles."""
  training = (TRAINING,) if LEARNER in roles or not roles else ()
  return training + (EVALUATION if EVALUATOR in roles or not roles else ())


def read(run_dir: str, node: str, *columns: str) -> list[tuple[float, ...]]:
  """Returns the rows of a node's CSV in which all the columns have finite values; [] if none."""
  return list(csv_file.numbers(node_files.csv_path(run_dir, node), columns))


def training_returns(run_dir: str) -> list[tuple[float, ...]]:
  """Returns (environment frames, mean return) of each report on training episodes."""
  rows = (read(run_dir, node, *TRAINING) for node in nodes(run_dir, LEARNER))
  return next(filter(None, rows), [])  # The first learner's, if there are several.


def last_training_return(run_dir: str, episodes: int) -> tuple[float, float]:
  """Returns the mean return of the last training episodes, and their number; NaN and 0 without any.

  Args:
    run_dir: of the run.
    episodes: how many at least, if there are as many; reports are taken whole.
  """
  total = count = 0.0
  for node in nodes(run_dir, LEARNER):
    reader = csv_file.CsvReader(node_files.csv_path(run_dir, node))
    reader.skip_to_tail(_TAIL_BYTES)
    rows = list(csv_file.finite(reader.read(), reader.columns, ['episodes', TRAINING[1]]))
    for number, mean in reversed(rows):
      if count >= episodes:
        break
      total, count = total + number * mean, count + number
    if count:  # The first learner's, if there are several.
      break
  return (total / count if count else math.nan), count


def evaluator_returns(run_dir: str) -> list[tuple[float, ...]]:
  """Returns (environment frames, mean return, its standard error) of the evaluations."""
  evaluators = nodes(run_dir, EVALUATOR)
  rows = (read(run_dir, node, *columns) for node in evaluators for columns in EVALUATION)
  return next(filter(None, rows), [])  # The first evaluator's, if there are several.


def draw(run_dir: str) -> None:
  """Writes `learning_curve.png`: evaluator's and training return against environment frames."""
  draw_all([run_dir], os.path.join(run_dir, 'learning_curve.png'))


def draw_all(run_dirs: Sequence[str], path: str) -> None:
  """Writes a PNG file with the curves of several runs.

  Args:
    run_dirs: of the runs.
    path: of the file.

  Raises:
    OSError: if the file cannot be written.
  """
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(7, 4), layout='constrained')
  axes = figure.add_subplot()
  several = len(run_dirs) > 1
  names = [sweep_directory.title(run_dir) for run_dir in run_dirs]
  for i, (run_dir, name) in enumerate(zip(run_dirs, names, strict=True)):
    colour, prefix = f'C{i}', f'{name}, ' if several else ''
    if training := training_returns(run_dir):
      faint: dict[str, Any] = {'color': colour, 'alpha': 0.3} if several else {'color': '0.7'}
      axes.plot(*zip(*training, strict=True), **faint, label=f'{prefix}training, with exploration')
    if evaluation := evaluator_returns(run_dir):
      frames, mean, stderr = zip(*evaluation, strict=True)
      axes.errorbar(
        frames, mean, stderr, color=colour, marker='.', capsize=2, label=f'{prefix}evaluator'
      )
  axes.set_xlabel('environment frames')
  axes.set_ylabel('episode return (raw)')
  if not several:
    axes.set_title(names[0], fontsize='medium')
  axes.grid(alpha=0.3)
  if axes.has_data():
    axes.legend(fontsize='small')
  FigureCanvasAgg(figure).print_png(path)
