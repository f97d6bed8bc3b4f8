"""The mean curve of several seeds, with the interval of the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sweeps import bootstrap

# Points of a curve over several seeds.
_POINTS = 60


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


def band(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Band | None:
  """Returns the mean of curves where all have values, linear between their points; None without any.

  Args:
    curves: the environment frames and the mean returns of each run, of one length.
  """
  sorted_curves = [_by_frames(frames, returns) for frames, returns in curves if len(returns)]
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


def _by_frames(frames: Sequence[float], returns: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
  """Returns frames, increasing, and returns; of points with equal frames, the last."""
  points = dict(zip(frames, returns, strict=True))
  ordered = sorted(points)
  return np.array(ordered, np.float64), np.array([points[f] for f in ordered], np.float64)
