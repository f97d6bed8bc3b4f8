"""What a sweep compares: a figure of a finished run, read from its directory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from environments import errors
from launchers.engine import Job
from rundir import csv_file, curves, node_files, run_end

DEFAULT = 'evaluator_return'
# Of the final evaluation, which every evaluator reports.
_EVALUATED = (DEFAULT, 'evaluator_return_stderr', 'evaluator_episodes', 'evaluator_seconds')
_SUMMARY = (*_EVALUATED, 'actor_steps', 'environment_frames', 'learner_steps', 'seconds')
_OF: Mapping[str, Callable[[list[float]], float]] = {
  'last': lambda values: values[-1],
  'mean': lambda values: sum(values) / len(values),
  'max': max,
  'min': min,
}
GOALS = ('maximize', 'minimize')


class UnknownMetricError(ValueError):
  """A finished run lacks the metric; one sentence."""


@dataclasses.dataclass(frozen=True)
class Metric:
  """A figure of a run.

  Attributes:
    name: an entry of `summary.json`, or GROUP/COLUMN of the log of the first node of a group.
    of: of a column's rows: 'last', 'mean', 'max' or 'min'.
    goal: 'maximize' or 'minimize'.
  """

  name: str = DEFAULT
  of: str = 'last'
  goal: str = GOALS[0]

  @property
  def title(self) -> str:
    """The metric in words."""
    return self.name if self.of == 'last' else f'{self.of} of {self.name}'

  @property
  def sign(self) -> int:
    """1 if larger is better, else -1."""
    return 1 if self.goal == GOALS[0] else -1

  def check(self, source: str) -> None:
    """Raises ValueError, one sentence that begins with `source`, if no run has such a metric."""
    if self.goal not in GOALS:
      raise ValueError(f'{source}: goal is {self.goal!r}; set it to maximize or minimize.')
    if self.of not in _OF:
      raise ValueError(f'{source}: metric_of is {self.of!r}; set it to {", ".join(_OF)}.')
    if '/' in self.name and not all(self.name.partition('/')):
      raise ValueError(f'{source}: metric is {self.name!r}; set it to GROUP/COLUMN of a log.')
    if '/' not in self.name and self.name not in _SUMMARY:
      near = errors.did_you_mean(self.name, _SUMMARY)
      raise ValueError(
        f'{source}: metric: no run has {self.name!r}{near or f"; there are: {_LIST}"}.'
      )
    if '/' not in self.name and self.of != 'last':
      raise ValueError(
        f'{source}: metric_of is for a column of a log; leave it out, or name the column, as in '
        '"metric: evaluator/evaluator_return".'
      )

  def check_job(self, job: Job, source: str) -> None:
    """Raises ValueError, one sentence that begins with `source`, if a job will not have the metric."""
    if '/' in self.name:
      group = self.name.partition('/')[0]
      if group not in job.program.groups:
        near = errors.did_you_mean(group, job.program.groups)
        there = f'; its groups are: {", ".join(job.program.groups)}'
        raise ValueError(f'{source}: metric: {job.name} has no group {group!r}{near or there}.')
    elif 'eval_envs' not in job.config:
      raise ValueError(
        f'{source}: metric: a Launchpad program of your own has no {self.name}; set it to a column of a '
        'log, as in "metric: GROUP/COLUMN".'
      )
    elif self.name in _EVALUATED and not job.config['eval_envs']:
      raise ValueError(
        f'{source}: metric: --eval_envs=0 leaves no evaluator, so no run has {self.name}; name '
        'another metric, or leave --eval_envs out.'
      )

  def read(self, run_dir: str) -> float:
    """Returns the figure of a finished run; it may be NaN.

    Raises:
      UnknownMetricError: the log has no such column; one sentence.
    """
    if '/' not in self.name:
      summary: dict[str, Any] = run_end.read_summary(run_dir) or {}
      return float(summary.get(self.name, math.nan))
    group, _, column = self.name.partition('/')
    rows = curves.read(run_dir, f'{group}/0', column)
    if not rows:
      there = csv_file.header(node_files.csv_path(run_dir, f'{group}/0'))
      if column in there:
        return math.nan  # Never finite.
      near = errors.did_you_mean(column, there)
      raise UnknownMetricError(
        f'metric: the log of {group}/0 in {run_dir} has no column {column!r}'
        f'{near or "; there are: " + ", ".join(there)}.'
      )
    return _OF[self.of]([value for (value,) in rows])


_LIST = ', '.join(_SUMMARY) + ', or GROUP/COLUMN of a log, such as evaluator/evaluator_return'
