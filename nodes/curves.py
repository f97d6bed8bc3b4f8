"""Logs and the learning-curve picture of a run directory."""

from __future__ import annotations

import csv
import glob
import math
import os
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
  files = glob.glob(os.path.join(glob.escape(run_dir), 'logs', '*.csv'))
  nodes = [os.path.splitext(os.path.basename(file))[0] for file in files]
  return max(
    (seconds for node in nodes for (seconds,) in read(run_dir, node, 'seconds')), default=0.0
  )


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


def _number(text: str | None) -> float:
  try:
    return float(text or 'nan')
  except ValueError:
    return math.nan  # A row that was cut off.


def draw(run_dir: str) -> None:
  """Writes `learning_curve.png`: evaluator's and training return against environment frames."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(7, 4), layout='constrained')
  axes = figure.add_subplot()
  training = [
    row for node in LEARNERS for row in read(run_dir, node, 'environment_frames', 'episode_return')
  ]
  values = ('evaluator_return', 'evaluator_return_stderr')
  # Where an evaluator knows whose parameters it evaluated, and not only when it had done so.
  evaluation = read(run_dir, 'evaluator/0', 'evaluated_frames', *values) or read(
    run_dir, 'evaluator/0', 'environment_frames', *values
  )
  if training:
    axes.plot(*zip(*training, strict=True), color='0.7', label='training, with exploration')
  if evaluation:
    frames, mean, stderr = zip(*evaluation, strict=True)
    axes.errorbar(frames, mean, stderr, color='C0', marker='.', capsize=2, label='evaluator')
  axes.set_xlabel('environment frames')
  axes.set_ylabel('episode return (raw)')
  axes.set_title(os.path.basename(os.path.normpath(run_dir)), fontsize='medium')
  axes.grid(alpha=0.3)
  if training or evaluation:
    axes.legend()
  FigureCanvasAgg(figure).print_png(os.path.join(run_dir, 'learning_curve.png'))
