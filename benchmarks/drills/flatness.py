"""Tests whether memory and descriptors of a run's processes grow.

python -m benchmarks.drills.flatness DIR/processes.csv       prints the table, also during the run
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import own
from benchmarks.drills import sampler
from benchmarks.drills.sampler import Sample

# A process grows at startup: it imports, compiles and fills its buffers.
START_SECONDS = 600.0
# The age at which a node's incarnations are compared with each other.
YOUNG_SECONDS = (120.0, 240.0)
# Minimum total time span of the samples, within incarnations; a slope over less is not significant.
ENOUGH_HOURS = 0.25
ENOUGH_INCARNATIONS = 3

MEMORY_LIMIT = 12.0  # MiB an hour.
DESCRIPTOR_LIMIT = 2.0  # An hour.

FLAT, GROWS, TOO_SHORT = 'flat', 'GROWS', 'too short'
# Series of (hours, values), one for each incarnation or node, each with its own level.
Series = Sequence[tuple[Sequence[float], Sequence[float]]]


class Slope(NamedTuple):
  """A growth rate.

  Attributes:
    per_hour: growth of the values per hour.
    error: standard error of `per_hour`.
    hours: total time span of the series.
  """

  per_hour: float
  error: float
  hours: float

  def verdict(self, limit: float, enough: bool) -> str:
    """Returns TOO_SHORT if not `enough`; GROWS if significantly above `limit`; else FLAT."""
    if not enough or math.isnan(self.per_hour):
      return TOO_SHORT
    return GROWS if self.per_hour - 2 * self.error > limit else FLAT

  def __str__(self) -> str:
    return '-' if math.isnan(self.per_hour) else f'{self.per_hour:+.2f} ± {self.error:.2f}'


def pooled(series: Series) -> Slope:
  """Returns the common slope of several series, by least squares.

  Args:
    series: the series, each with its own level.
  """
  series = [(x, y) for x, y in series if len(x) > 1]
  x = np.concatenate([np.zeros(0), *(np.subtract(x, np.mean(x)) for x, _ in series)])
  y = np.concatenate([np.zeros(0), *(np.subtract(y, np.mean(y)) for _, y in series)])
  spread, free = float(np.sum(x**2)), len(x) - len(series) - 1
  if spread == 0 or free < 1:
    return Slope(math.nan, math.nan, 0.0)
  slope = float(np.sum(x * y)) / spread
  error = math.sqrt(float(np.sum((y - slope * x) ** 2)) / free / spread)
  return Slope(slope, error, sum(max(x) - min(x) for x, _ in series))


class Growth(NamedTuple):
  """Resource use of a group of nodes over a run.

  Attributes:
    group: such as 'actor'.
    incarnations: number of sampled processes.
    longest_hours: duration of the longest process.
    level: median of own memory in MiB, after startup.
    peak: maximum own memory in MiB.
    within: growth of own memory within an incarnation, in MiB per hour, without startup.
    between: growth of own memory between incarnations of the same age, in MiB per hour of the run.
    descriptors: minimum and maximum, after startup.
    descriptors_within: growth of descriptors within an incarnation, per hour.
    cores: mean CPU seconds per second.
    verdict: FLAT, TOO_SHORT, or the quantities with GROWS.
  """

  group: str
  incarnations: int
  longest_hours: float
  level: float
  peak: float
  within: Slope
  between: Slope
  descriptors: tuple[int, int]
  descriptors_within: Slope
  cores: float
  verdict: str


def growths(samples: Iterable[Sample]) -> list[Growth]:
  """Returns one row for each group."""
  groups: dict[str, dict[tuple[str, int], list[Sample]]] = {}
  for sample in samples:
    incarnations = groups.setdefault(own.group(sample.node), {})
    incarnations.setdefault((sample.node, sample.pid), []).append(sample)
  return [_growth(name, groups[name]) for name in sorted(groups)]


def _growth(group: str, incarnations: dict[tuple[str, int], list[Sample]]) -> Growth:
  old = [[s for s in each if s.age > START_SECONDS] for each in incarnations.values()]
  every = [s for each in incarnations.values() for s in each]
  settled = [s for each in old for s in each] or every
  within = pooled([([s.age / 3600 for s in each], [s.own_mib for s in each]) for each in old])
  descriptors = pooled(
    [([s.age / 3600 for s in each], [float(s.descriptors) for s in each]) for each in old]
  )
  young = _young(incarnations)
  between = pooled(young)
  verdicts = {
    'memory within an incarnation': within.verdict(MEMORY_LIMIT, within.hours >= ENOUGH_HOURS),
    'memory between incarnations': between.verdict(
      MEMORY_LIMIT, any(len(x) >= ENOUGH_INCARNATIONS for x, _ in young)
    ),
    'descriptors': descriptors.verdict(DESCRIPTOR_LIMIT, descriptors.hours >= ENOUGH_HOURS),
  }
  growing = [what for what, verdict in verdicts.items() if verdict == GROWS]
  counts = [s.descriptors for s in settled]
  spans = [each[-1].seconds - each[0].seconds for each in incarnations.values()]
  used = sum(each[-1].cpu_seconds for each in incarnations.values())
  run_seconds = max(s.seconds for s in every) - min(s.seconds - s.age for s in every)
  return Growth(
    group=group,
    incarnations=len(incarnations),
    longest_hours=max(spans) / 3600,
    level=float(np.median([s.own_mib for s in settled])),
    peak=max(s.own_mib for s in every),
    within=within,
    between=between,
    descriptors=(min(counts), max(counts)),
    descriptors_within=descriptors,
    cores=used / max(run_seconds, 1.0),
    verdict=f'{", ".join(growing)} {GROWS}'
    if growing
    else FLAT
    if FLAT in verdicts.values()
    else TOO_SHORT,
  )


def _young(incarnations: dict[tuple[str, int], list[Sample]]) -> Series:
  """Returns, for each node, the start times of its incarnations and their own memory at the same age."""
  nodes: dict[str, tuple[list[float], list[float]]] = {}
  least, most = YOUNG_SECONDS
  for (node, _), each in incarnations.items():
    level = [s.own_mib for s in each if least <= s.age <= most]
    if level:
      hours, levels = nodes.setdefault(node, ([], []))
      hours.append((each[0].seconds - each[0].age) / 3600)
      levels.append(float(np.median(level)))
  return list(nodes.values())


def grows(rows: Iterable[Growth]) -> list[str]:
  """Returns the groups with any growth."""
  return [row.group for row in rows if GROWS in row.verdict]


def table(rows: Iterable[Growth]) -> str:
  """Returns the rows as a Markdown table."""
  lines = [
    '| group | incarnations | longest, h | own memory, MiB | peak | MiB/h within one '
    '| MiB/h between them | descriptors | descriptors/h | cores | verdict |',
    '|---|---|---|---|---|---|---|---|---|---|---|',
  ]
  for r in rows:
    lines.append(
      f'| {r.group} | {r.incarnations} | {r.longest_hours:.2f} | {r.level:.1f} | {r.peak:.1f} '
      f'| {r.within} | {r.between} | {r.descriptors[0]} to {r.descriptors[1]} '
      f'| {r.descriptors_within} | {r.cores:.3f} | {r.verdict} |'
    )
  return '\n'.join(lines)


def main(argv: list[str]) -> None:
  """Prints the table of a file of samples."""
  print(table(growths(sampler.read(argv[1]))))


if __name__ == '__main__':
  main(sys.argv)
