"""The CPU time of a piece of work, of all threads of the processes that share it."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import psutil


class Cost(NamedTuple):
  """Seconds for one unit of work, each the median of several timings.

  Attributes:
    cpu: CPU seconds by the node whose process uses them.
    wall: seconds.
  """

  cpu: dict[str, float]
  wall: float


def cpu_seconds(process: psutil.Process) -> float:
  """Returns the CPU seconds that all threads of a process have used so far."""
  used = process.cpu_times()
  return used.user + used.system


def measure(
  work: Callable[[], float],
  seconds: float,
  repeats: int,
  here: str,
  others: Mapping[str, int] | None = None,
  calls: tuple[int, int] = (1, sys.maxsize),
) -> Cost:
  """Does a piece of work again and again, once of it beforehand and not counted.

  Args:
    work: does some of it; returns how many units.
    seconds: of each timing.
    repeats: timings.
    here: the node whose work this process does.
    others: ids of the other processes that work on it, by node.
    calls: of each timing, at least and at most, whatever the seconds.
  """
  processes = {name: psutil.Process(pid) for name, pid in (others or {}).items()}

  def read() -> dict[str, float]:
    return {here: time.process_time()} | {n: cpu_seconds(p) for n, p in processes.items()}

  work()
  least, most = calls
  timings: list[tuple[dict[str, float], float]] = []
  for _ in range(repeats):
    before, started = read(), time.perf_counter()
    done, units = 0, 0.0
    while done < least or (done < most and time.perf_counter() - started < seconds):
      units += work()
      done += 1
    wall, after = time.perf_counter() - started, read()
    timings.append(({n: (after[n] - before[n]) / units for n in after}, wall / units))
  # The whole of one timing: medians of the parts would not add up.
  timings.sort(key=lambda timing: sum(timing[0].values()))
  cpu, wall = timings[len(timings) // 2]
  return Cost(cpu, statistics.median(wall for _, wall in timings))
