"""Learning curves of several runs: grouped by equal options except the seed, with intervals."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from rundir import csv_file, curves, node_files, secrets
from rundir.roles import EVALUATOR, LEARNER
from viewing.progress import Progress

_POINTS = 300
# Options that differ between runs which are repetitions of each other.
_OF_ONE_RUN = {'seed', 'run_dir', 'resumes', 'cpu_cores'}
# Quantiles of Student's t for a 95% interval of 3 to 31 runs; for more runs the last is a little large.
_T = (
  *(
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
  ),
  *(
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
  ),
  2.042,
)


class LearningCurve:
  """The curve of a run: evaluations, or training returns before the second evaluation.

  Attributes:
    evaluated: whether the curve is that of the evaluations.
    by_kind: frames and return of each point, for 'evaluator' and 'training'.
  """

  def __init__(self, run_dir: str):
    """Initialises a curve without reading it."""
    self._run_dir = run_dir
    self._seen: tuple[int, ...] = ()
    self.evaluated = True
    self.by_kind: dict[str, list[tuple[float, float]]] = {'evaluator': [], 'training': []}

  def update(self) -> None:
    """Reads the curve again if its files have grown; the time does not depend on their size."""
    evaluators, learners = (
      [node_files.csv_path(self._run_dir, node) for node in curves.nodes(self._run_dir, role)]
      for role in (EVALUATOR, LEARNER)
    )
    paths = evaluators + learners
    sizes = tuple(os.path.getsize(path) if os.path.exists(path) else 0 for path in paths)
    if sizes == self._seen:
      return
    self._seen = sizes
    evaluations = _points(evaluators, curves.EVALUATION)
    training = _points(learners, [curves.TRAINING])
    self.evaluated = len(evaluations) > 1 or not training
    self.by_kind = {'evaluator': evaluations, 'training': training}


def grouped(runs: Sequence[Progress], read: Sequence[LearningCurve]) -> list[dict[str, Any]]:
  """Returns the curves of some runs, grouped by equal options except the seed.

  Args:
    runs: the runs.
    read: the curve of each run.

  Returns:
    For each group its `runs` (their positions), its `kind` (evaluations only if all have them), its
    `options` that differ from other groups, its `lines` (x and y of each run), and for three runs or
    more of two points their number `averaged`, and `x`, `mean`, `low` and `high`: the mean and its 95%
    interval by Student's t, over the frames that all of them have reached.
  """
  members: dict[str, list[int]] = {}
  for i, run in enumerate(runs):
    options = {name: value for name, value in run.config.items() if name not in _OF_ONE_RUN}
    members.setdefault(json.dumps([run.program, options], sort_keys=True), []).append(i)
  result = []
  for key, mine in members.items():
    kind = 'evaluator' if all(read[i].evaluated for i in mine) else 'training'
    points = [read[i].by_kind[kind] for i in mine]
    lines = [list(map(list, zip(*line, strict=True))) or [[], []] for line in points]
    group: dict[str, Any] = {
      'runs': mine,
      'name': _name(runs, key, list(members)) if len(mine) > 1 else runs[mine[0]].name,
      'kind': kind,
      'lines': lines,
    }
    result.append(group | _interval([np.array(line) for line in lines if len(line[0]) > 1]))
  return result


def _interval(lines: list[np.ndarray]) -> dict[str, Any]:
  if len(lines) < 3:
    return {}
  begin, end = max(line[0][0] for line in lines), min(line[0][-1] for line in lines)
  if not begin < end:
    return {}
  x = np.linspace(begin, end, 100)
  y = np.stack([np.interp(x, *line) for line in lines])
  mean = y.mean(axis=0)
  half = _T[min(len(lines), 2 + len(_T)) - 3] * y.std(axis=0, ddof=1) / math.sqrt(len(lines))
  return {
    'averaged': len(lines),
    'x': x.tolist(),
    'mean': mean.tolist(),
    'low': (mean - half).tolist(),
    'high': (mean + half).tolist(),
  }


def _name(runs: Sequence[Progress], key: str, keys: list[str]) -> str:
  program, options = json.loads(key)
  others = [json.loads(other) for other in keys if other != key]
  differing = [
    f'--{name}={secrets.masked(f"{name}={value}").partition("=")[2]}'
    for name, value in options.items()
    if any(other[1].get(name, value) != value for other in others)
  ]
  programs = {other[0] for other in others} | {program}
  words = [program] * (len(programs) > 1) + differing[:4]
  return ' '.join(words) or f'{program} on {options.get("env", "")}'


def _points(paths: Sequence[str], series: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
  """Returns the points of the first file that has some, by the first of these sets of columns."""
  for path in paths:
    columns, rows = csv_file.thinned(path, _POINTS)
    for x, y, *_ in series:
      if x in columns and y in columns:
        pairs = ((row[columns.index(x)], row[columns.index(y)]) for row in rows)
        if points := sorted(pair for pair in pairs if all(map(math.isfinite, pair))):
          return points
  return []
