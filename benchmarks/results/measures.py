"""Measurements of recorded runs: times to a return, and curves over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.results.records import Curve
from sweeps import bands
from sweeps.bands import Band


class Reached(NamedTuple):
  """When a run first had a mean return.

  Attributes:
    environment_frames: of the parameters that had it.
    seconds: wall time, start-up included.
  """

  environment_frames: int
  seconds: float


def reached(curve: Curve, threshold: float) -> Reached | None:
  """Returns when a curve first had a mean return of at least `threshold`; None if it never had."""
  rows = zip(curve.environment_frames, curve.seconds, curve.mean_return, strict=True)
  return next((Reached(f, s) for f, s, mean in rows if mean >= threshold), None)


def band(curves: Sequence[Curve]) -> Band | None:
  """Returns the mean of curves, see `bands.band`."""
  return bands.band([(curve.environment_frames, curve.mean_return) for curve in curves])
