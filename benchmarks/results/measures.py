"""Measurements of recorded runs: times to a return, and curves over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.results.records import Curve
from sweeps import bands
from sweeps.bands import Band


class Reached(NamedTuple):
  """When a run first had a mean return, and kept it for the next evaluation.

  Attributes:
    environment_frames: of the parameters that had it.
    seconds: wall time, start-up included.
    late: whether it is the last evaluation, and the one before has less than half of its frames.
  """

  environment_frames: int
  seconds: float
  late: bool


def reached(curve: Curve, threshold: float) -> Reached | None:
  """Returns when a curve first had a mean return of at least `threshold`; None if it never had.

  The next evaluation, if there is one, must have it too: one of few episodes may have it by chance.
  """
  frames, means = curve.environment_frames, curve.mean_return
  first = next((i for i in range(len(means)) if min(means[i : i + 2]) >= threshold), None)
  if first is None:
    return None
  before = frames[first - 1] if first else 0
  late = first == len(frames) - 1 and 2 * before < frames[first]
  return Reached(frames[first], curve.seconds[first], late)


def band(curves: Sequence[Curve]) -> Band | None:
  """Returns the mean of curves, see `bands.band`."""
  return bands.band([(curve.environment_frames, curve.mean_return) for curve in curves])
