"""Progress reports of a run, and measurements derived from them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.drivers.recent import RecentReturns


class Report(NamedTuple):
  """One report.

  Attributes:
    seconds: since the command was given.
    steps: agent decisions so far, by the system's own count.
    learned: steps that the learner has trained on.
    episode_return: mean of the last training episodes; NaN before the first has ended.
  """

  seconds: float
  steps: float
  learned: float
  episode_return: float


def parse(lines: Iterable[str]) -> list[Report]:
  """Returns the reports among the lines that a driver printed; skips other lines."""
  found = []
  for line in lines:
    if not line.startswith('{'):
      continue
    try:
      record = json.loads(line)
      value = record['episode_return']
      value = math.nan if value is None else value
      found.append(Report(record['seconds'], record['steps'], record['learned'], value))
    except (ValueError, KeyError, TypeError):
      continue  # A library's own line, or an incomplete one.
  return found


def final(lines: Iterable[str]) -> dict[str, Any] | None:
  """Returns the final evaluation that a driver printed; None if it printed none.

  It has `mean`, `standard_error`, `episodes` and, in words, `protocol`.
  """
  for line in lines:
    if line.startswith('{"final"'):
      try:
        return dict(json.loads(line)['final'])
      except (ValueError, KeyError, TypeError):
        return None  # An incomplete line.
  return None


def recent_returns(intervals: Sequence[tuple[float, float]]) -> list[float]:
  """Returns the mean return of the last episodes after each interval.

  Args:
    intervals: (number of ended episodes, mean return or NaN) of each interval.

  Returns:
    After each interval: the mean of `RecentReturns`, NaN before the end of the first episode.
  """
  recent, means = RecentReturns(), []
  for count, mean in intervals:
    recent.add(int(count), count * mean if count else 0.0)
    means.append(recent.mean())
  return means


def first_steps(reports: Sequence[Report]) -> float | None:
  """Returns the second of the first report with steps; None if there is none."""
  return next((report.seconds for report in reports if report.steps > 0), None)


def rate(window: Sequence[Report], count: str) -> float | None:
  """Returns the rate of a count per second, from the first to the last report of a window.

  Args:
    window: the reports.
    count: 'steps' or 'learned'.

  Returns:
    The rate; None for fewer than two reports.
  """
  if len(window) < 2:
    return None
  first, last = window[0], window[-1]
  return (getattr(last, count) - getattr(first, count)) / (last.seconds - first.seconds)


def seconds_to(reports: Sequence[Report], threshold: float | None) -> float | None:
  """Returns the second of the first return of at least `threshold`; None if there is none."""
  if threshold is None:
    return None
  return next((r.seconds for r in reports if r.episode_return >= threshold), None)


def spread(runs: Sequence[dict[str, Any]], name: str) -> dict[str, float] | None:
  """Returns median, minimum and maximum of a measurement over the runs that have it."""
  values = [run[name] for run in runs if run[name] is not None]
  if not values:
    return None
  return {
    'median': statistics.median(values),
    'least': min(values),
    'greatest': max(values),
    'runs': len(values),
  }


def shown(values: dict[str, float] | None, runs: int, digits: int = 0) -> str:
  """Formats a spread: '1,234 (1,200 to 1,300)', with the number of runs if some lack the value."""
  if values is None:
    return '-'
  text = f'{values["median"]:,.{digits}f}'
  if values['runs'] > 1:
    text += f' ({values["least"]:,.{digits}f} to {values["greatest"]:,.{digits}f})'
  return text if values['runs'] == runs else f'{text}, {values["runs"]} of {runs}'
