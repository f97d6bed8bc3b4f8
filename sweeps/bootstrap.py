"""Aggregates over runs, with stratified bootstrap intervals (Agarwal et al. 2021).

*Deep reinforcement learning at the edge of the statistical precipice*, sections 4.1 and 4.3: runs are
resampled with replacement within each task. Percentiles of the resampled aggregates make an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

_DRAWS = 2000
_COVERAGE = 95.0
_SEED = 0
Statistic = Callable[[np.ndarray], np.ndarray]


class Estimate(NamedTuple):
  """An aggregate with its interval, arrays of one shape; None if a task has less than two runs."""

  value: np.ndarray
  interval: tuple[np.ndarray, np.ndarray] | None


def mean(scores: np.ndarray) -> np.ndarray:
  """Returns the mean over axis 1 of scores `[draws, runs, ...]`."""
  return scores.mean(axis=1)


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
  """Returns the mean of the middle half over axis 1 of scores `[draws, runs, ...]`.

  A quarter of the runs, rounded down, is left out at each end.
  """
  runs = scores.shape[1]
  cut = runs // 4
  return np.sort(scores, axis=1)[:, cut : runs - cut].mean(axis=1)


def estimate(strata: Sequence[np.ndarray], statistic: Statistic = mean) -> Estimate:
  """Returns an aggregate over the runs of all strata, and its interval of 95%.

  The draws have a fixed seed, so equal scores give equal intervals.

  Args:
    strata: for each task the scores of its runs, `[runs, ...]`; tasks may differ in their runs.
    statistic: maps `[draws, runs of all tasks, ...]` to `[draws, ...]`.
  """
  scores = [np.asarray(stratum, np.float64) for stratum in strata]
  value = statistic(np.concatenate(scores)[None])[0]
  if min(len(stratum) for stratum in scores) < 2:
    return Estimate(value, None)
  rng = np.random.default_rng(_SEED)
  picks = [rng.integers(0, len(s), (_DRAWS, len(s))) for s in scores]
  drawn = np.concatenate([s[p] for s, p in zip(scores, picks, strict=True)], axis=1)
  tail = (100.0 - _COVERAGE) / 2
  low, high = np.percentile(statistic(drawn), [tail, 100.0 - tail], axis=0)
  return Estimate(value, (low, high))
