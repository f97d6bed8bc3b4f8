"""CPU time of a piece of work, over all threads of the processes that share it."""

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
    cpu: CPU seconds, by node.
    wall: wall-clock seconds.
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
  """Times repeated calls of `work`, after one warm-up call.

  Args:
    work: does some units of work; returns how many.
    seconds: length of each timing.
    repeats: number of timings.
    here: the node whose work this process does.
    others: ids of the other processes that do part of the work, by node.
    calls: minimum and maximum calls in each timing; they take precedence over `seconds`.
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
  # One whole timing, since medians of the parts would not add up.
  timings.sort(key=lambda timing: sum(timing[0].values()))
  cpu, wall = timings[len(timings) // 2]
  return Cost(cpu, statistics.median(wall for _, wall in timings))
