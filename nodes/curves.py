"""Logs and the learning-curve picture of a run directory."""

from __future__ import annotations

import csv
import glob
import math
import os
from collections.abc import Sequence
from typing import Any

from acme.utils import loggers

# The nodes that report what training measures; a program has one kind of them.
LEARNERS = ('inference_learner/0', 'learner/0', 'anakin/0')


def csv_logger(run_dir: str, node: str) -> loggers.Logger:
  """Returns acme's CSV logger for `run_dir/logs/<node>.csv`; the first write names the columns."""
  path = csv_path(run_dir, node)
  os.makedirs(os.path.dirname(path), exist_ok=True)
  file = open(path, 'a+')  # noqa: SIM115  open as long as the monitor
  file.seek(0)
  if file.read()[-1:] not in ('', '\n'):  # A monitor was killed within a row.
    file.write('\n')
  return loggers.CSVLogger(file, flush_every=1)


def csv_path(run_dir: str, node: str) -> str:
  """Returns where the measurements of a node such as 'actor/3' are."""
  return os.path.join(run_dir, 'logs', node.replace('/', '-') + '.csv')


def last_second(run_dir: str) -> float:
  """Returns how far into the run, in seconds, its logs reach; 0 if there are none."""
  return max(
    (seconds for node in nodes(run_dir) for (seconds,) in read(run_dir, node, 'seconds')),
    default=0.0,
  )


def nodes(run_dir: str) -> list[str]:
  """Returns the nodes that have logged anything, such as 'actor/3'."""
  files = glob.glob(os.path.join(glob.escape(run_dir), 'logs', '*.csv'))
  return sorted('/'.join(os.path.basename(file)[:-4].rsplit('-', 1)) for file in files)


def scalar_writer(directory: str) -> Any:
  """Returns a TensorBoard writer with `add_scalar(name, value, step)`, without TensorFlow."""
  import tensorboardX

  return tensorboardX.SummaryWriter(directory)


def read(run_dir: str, node: str, *columns: str) -> list[tuple[float, ...]]:
  """Returns the rows of a node's CSV in which all the columns have finite values; [] if none."""
  path = csv_path(run_dir, node)
  if not os.path.exists(path):
    return []
  with open(path) as f:
    rows = [tuple(_number(row.get(c)) for c in columns) for row in csv.DictReader(f)]
  return [row for row in rows if all(map(math.isfinite, row))]


def latest(run_dir: str, node: str) -> dict[str, float]:
  """Returns the last finite value in each column of a node's CSV that has one."""
  values: dict[str, float] = {}
  with open(csv_path(run_dir, node)) as f:
    for row in csv.DictReader(f):
      numbers = {name: _number(text) for name, text in row.items() if name}
      values |= {name: number for name, number in numbers.items() if math.isfinite(number)}
  return values


def training_returns(run_dir: str) -> list[tuple[float, ...]]:
  """Returns (environment frames, mean return) of the training episodes, as they were reported."""
  rows = (read(run_dir, n, 'environment_frames', 'episode_return') for n in nodes(run_dir))
  return next(filter(None, rows), [])  # Of several learners, those of the first.


def evaluator_returns(run_dir: str) -> list[tuple[float, ...]]:
  """Returns (environment frames, mean return, its standard error) of the evaluations."""
  values = ('evaluator_return', 'evaluator_return_stderr')
  # Where an evaluator knows whose parameters it evaluated, and not only when it had done so.
  return read(run_dir, 'evaluator/0', 'evaluated_frames', *values) or read(
    run_dir, 'evaluator/0', 'environment_frames', *values
  )


def _number(text: str | None) -> float:
  try:
    return float(text or 'nan')
  except ValueError:
    return math.nan  # A row that was cut off.


def draw(run_dir: str) -> None:
  """Writes `learning_curve.png`: evaluator's and training return against environment frames."""
  draw_all([run_dir], os.path.join(run_dir, 'learning_curve.png'))


def draw_all(run_dirs: Sequence[str], path: str) -> None:
  """Writes a PNG file with the curves of several runs.

  Args:
    run_dirs: of the runs.
    path: of the file.

  Raises:
    OSError: the file cannot be written.
  """
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(7, 4), layout='constrained')
  axes = figure.add_subplot()
  several = len(run_dirs) > 1
  names = [os.path.basename(os.path.normpath(run_dir)) for run_dir in run_dirs]
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
