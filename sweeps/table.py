"""The trials of a sweep, best first, with means and 95% intervals over seeds: as CSV and Markdown."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from programs.options import config_file
from rundir import secrets, sweep_directory
from rundir.sweep_directory import DONE, FAILED, Outcome
from sweeps import bootstrap, cells
from sweeps.bootstrap import Estimate
from sweeps.metrics import Metric, UnknownMetricError
from sweeps.spec import Sweep


@dataclasses.dataclass(frozen=True)
class Run:
  """A seed of a trial.

  Attributes:
    seed: of the run.
    outcome: how it ended; None if it has not been run to an end.
    value: of the metric; NaN unless it is done.
  """

  seed: int
  outcome: Outcome | None
  value: float

  @property
  def done(self) -> bool:
    """Whether it ended as it should."""
    return self.outcome is not None and self.outcome.state == DONE


@dataclasses.dataclass(frozen=True)
class Row:
  """A trial.

  Attributes:
    number: of the trial, 0 for a sweep over seeds alone.
    values: its flags by name.
    runs: one for each seed.
    estimate: the mean of the metric over the seeds that are done, with its interval; None without any.
  """

  number: int
  values: Mapping[str, Any]
  runs: Sequence[Run]
  estimate: Estimate | None

  @property
  def valued(self) -> int:
    """The number of seeds that have a value."""
    return sum(math.isfinite(run.value) for run in self.runs)

  @property
  def seconds(self) -> float:
    """The wall time of its runs, added up."""
    return sum(run.outcome.seconds for run in self.runs if run.outcome)

  def failures(self, metric: Metric) -> list[str]:
    """Returns a line for each run that failed, or has no value."""
    lines = []
    for run in self.runs:
      if run.outcome is not None and run.outcome.state == FAILED:
        lines.append(f'{name(self.number, run.seed)}: {run.outcome.reason}')
      elif run.done and not math.isfinite(run.value):
        lines.append(f'{name(self.number, run.seed)}: {no_value(metric)}')
    return lines


def name(number: int, seed: int) -> str:
  """Returns the name of a run in lines and tables."""
  return f'trial {number} seed {seed}' if number else f'seed {seed}'


def no_value(metric: Metric) -> str:
  """Returns what is said of a run that ended without a value of the metric."""
  return f'{metric.title} is not finite, or missing'


def value_of(run_dir: str, metric: Metric) -> float:
  """Returns the metric of a run that is done; NaN if it has none."""
  try:
    return metric.read(run_dir)
  except UnknownMetricError:
    return math.nan


def ranked(
  sweep: Sweep, directory: str, trials: Sequence[tuple[int, Mapping[str, Any]]]
) -> list[Row]:
  """Returns the trials, best first: those with all seeds, those with some, those with none.

  Args:
    sweep: the sweep.
    directory: of the sweep.
    trials: their numbers and flags.
  """
  rows = []
  for number, values in trials:
    runs = []
    for seed in sweep.seeds:
      run_dir = sweep_directory.run_dir(directory, number, seed)
      run = Run(seed, sweep_directory.outcome(run_dir), math.nan)
      if run.done:
        run = dataclasses.replace(run, value=value_of(run_dir, sweep.metric))
      runs.append(run)
    found = np.array([run.value for run in runs if math.isfinite(run.value)])
    rows.append(Row(number, values, runs, bootstrap.estimate([found]) if len(found) else None))

  def order(row: Row) -> tuple[int, float, int]:
    if row.estimate is None:
      return 2, 0.0, row.number
    mean = -sweep.metric.sign * float(row.estimate.value)
    return int(row.valued < len(row.runs)), mean, row.number

  return sorted(rows, key=order)


def as_csv(sweep: Sweep, rows: Sequence[Row]) -> str:
  """Returns the table as CSV: a line for each trial, with the metric of each seed."""
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  seeds = [f'seed_{seed}' for seed in sweep.seeds]
  ends = ['mean', 'low', 'high', 'seeds_done', 'seeds', 'seconds', 'failures']
  writer.writerow(['rank', 'trial', *sweep.axes, *ends, *seeds])
  for rank, row in enumerate(rows, 1):
    mean = row.estimate.value if row.estimate else ''
    low, high = (row.estimate and row.estimate.interval) or ('', '')
    flags = [_shown(flag, row.values) for flag in sweep.axes]
    values = [run.value if math.isfinite(run.value) else '' for run in row.runs]
    ended = [
      row.valued,
      len(row.runs),
      round(row.seconds, 1),
      '; '.join(row.failures(sweep.metric)),
    ]
    writer.writerow([rank, row.number, *flags, mean, low, high, *ended, *values])
  return text.getvalue()


def as_markdown(sweep: Sweep, rows: Sequence[Row]) -> list[str]:
  """Returns the lines of the table in Markdown."""
  header = [f'{sweep.metric.title} (95% interval)', 'seeds', 'seconds']
  if sweep.axes:
    header = ['rank', 'trial', *(f'`--{flag}`' for flag in sweep.axes), *header]
  lines = []
  for rank, row in enumerate(rows, 1):
    line = [
      cells.estimate(row.estimate) if row.estimate else cells.NONE,
      f'{row.valued} of {len(row.runs)}',
      cells.number(row.seconds) if row.seconds else cells.NONE,
    ]
    if sweep.axes:
      flags = [_shown(flag, row.values).replace('|', '/') for flag in sweep.axes]
      line = [str(rank) if row.estimate else cells.NONE, str(row.number), *flags, *line]
    lines.append(line)
  return cells.table(header, lines)


def page(sweep: Sweep, rows: Sequence[Row], figure: str) -> list[str]:
  """Returns the lines of the page in Markdown.

  Args:
    sweep: the sweep.
    rows: as `ranked` returns them.
    figure: file of the learning curves; '' without one.
  """
  goal = 'largest' if sweep.metric.sign > 0 else 'smallest'
  seeds = ', '.join(map(str, sweep.seeds))
  lines = [f'# {sweep.title}', '', f'- Runs: `{_command(sweep, {})}`']
  if sweep.axes:
    lines += [
      f'- Trials: {sweep.search}; seeds {seeds}.',
      f'- The {goal} mean over seeds comes first, and trials with all seeds before others.',
    ]
  else:
    lines += [f'- Seeds: {seeds}.']
  lines += ['- In brackets stands the 95% interval of the mean, by bootstrap over seeds.', '']
  lines += as_markdown(sweep, rows)
  if figure:
    lines += [f'![Learning curves]({figure})', '']
  if sweep.axes and rows and rows[0].estimate:
    lines += ['The best trial:', '', f'    {_command(sweep, rows[0].values)}', '']
  if failures := [line for row in rows for line in row.failures(sweep.metric)]:
    lines += ['Failed runs:', '', *(f'- {line}' for line in failures), '']
  return lines


def label(sweep: Sweep, row: Row) -> str:
  """Returns the name of a trial in a figure, with its flags and the number of its seeds."""
  done = sum(run.done for run in row.runs)
  seeds = f'{done} seed{"s" if done > 1 else ""}'
  flags = ' '.join(f'{flag}={_shown(flag, row.values)}' for flag in sweep.axes)
  return f'trial {row.number}: {flags}, {seeds}' if sweep.axes else seeds


def _command(sweep: Sweep, values: Mapping[str, Any]) -> str:
  words = secrets.masked_command(sweep.command(values))
  return ' '.join(['launch.py', *map(shlex.quote, words)])


def _shown(flag: str, values: Mapping[str, Any]) -> str:
  """Returns the value of a flag as text, without secrets."""
  return secrets.shown(flag, config_file.text(values[flag]))
