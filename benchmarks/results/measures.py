"""Measurements of recorded runs: times to a return, and curves over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.results import bootstrap
from benchmarks.results.records import Curve

# Points of a curve over several seeds.
_POINTS = 60


class Reached(NamedTuple):
  """When a run first had a mean return.

  Attributes:
    environment_frames: of the parameters that had it.
    seconds: wall time, start-up included.
  """

  environment_frames: int
  seconds: float


class Band(NamedTuple):
  """The mean curve of some runs, arrays of one length.

  Attributes:
    environment_frames: common to the runs.
    mean: of the returns.
    low, high: the interval of the mean; equal to it for a single run.
  """

  environment_frames: np.ndarray
  mean: np.ndarray
  low: np.ndarray
  high: np.ndarray


def reached(curve: Curve, threshold: float) -> Reached | None:
  """Returns when a curve first had a mean return of at least `threshold`; None if it never had."""
  rows = zip(curve.environment_frames, curve.seconds, curve.mean_return, strict=True)
  return next((Reached(f, s) for f, s, mean in rows if mean >= threshold), None)


def band(curves: Sequence[Curve]) -> Band | None:
  """Returns the mean of curves where all have values, linear between their points; None without any."""
  sorted_curves = [_by_frames(curve) for curve in curves if curve.mean_return]
  if not sorted_curves:
    return None
  if len(sorted_curves) == 1:
    frames, returns = sorted_curves[0]
    return Band(frames, returns, returns, returns)
  first = max(frames[0] for frames, _ in sorted_curves)
  last = min(frames[-1] for frames, _ in sorted_curves)
  grid = np.linspace(first, max(last, first), _POINTS)
  runs = np.stack([np.interp(grid, frames, returns) for frames, returns in sorted_curves])
  mean, interval = bootstrap.estimate([runs])
  assert interval is not None
  return Band(grid, mean, *interval)


def _by_frames(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
  """Returns frames, increasing, and returns; of points with equal frames, the last."""
  points = dict(zip(curve.environment_frames, curve.mean_return, strict=True))
  frames = sorted(points)
  return np.array(frames, np.float64), np.array([points[f] for f in frames], np.float64)
