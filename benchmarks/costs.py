"""CPU time of a piece of work, over all threads of the processes that share it."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import psutil

_SLEEPS = 100


class Cost(NamedTuple):
  """Seconds for one unit of work, each the median of several timings.

  Attributes:
    cpu: CPU seconds, by node.
    wall: wall-clock seconds.
    python: CPU seconds of the Python threads of the process that measures, of those in `cpu`.
  """

  cpu: dict[str, float]
  wall: float
  python: float


def cpu_seconds(process: psutil.Process) -> float:
  """Returns the CPU seconds that all threads of a process have used so far."""
  used = process.cpu_times()
  return used.user + used.system


def family(process: psutil.Process) -> list[psutil.Process]:
  """Returns a node's process and those that it has started, such as Reverb's."""
  return [process, *process.children(recursive=True)]


def _python_seconds() -> float:
  """Returns the CPU seconds that the Python threads of this process have used, of those that live."""
  clocks = [time.pthread_getcpuclockid(t.ident) for t in threading.enumerate() if t.ident]
  return sum(map(time.clock_gettime, clocks))


def _pausing(seconds: float) -> float:
  """Returns the CPU seconds of a sleep of so many seconds."""
  before = time.process_time()
  for _ in range(_SLEEPS):
    time.sleep(seconds)
  return (time.process_time() - before) / _SLEEPS


def measure(
  work: Callable[[], float],
  seconds: float,
  repeats: int,
  here: str,
  others: Mapping[str, int] | None = None,
  calls: tuple[int, int] = (1, sys.maxsize),
  pause: float = 0.0,
) -> Cost:
  """Times repeated calls of `work`, after one warm-up call.

  Args:
    work: does some units of work; returns how many.
    seconds: length of each timing.
    repeats: number of timings.
    here: the node whose work this process does.
    others: ids of the other processes that do part of the work, by node.
    calls: minimum and maximum calls in each timing; they take precedence over `seconds`.
    pause: seconds of sleep before each call, which are in none of its costs. After it, a call finds its
      data out of the caches and its core asleep, as in a program whose processes wait for each other.
  """
  processes = {name: psutil.Process(pid) for name, pid in (others or {}).items()}

  def read() -> tuple[dict[str, float], float]:
    used = {here: time.process_time()} | {
      name: sum(map(cpu_seconds, family(process))) for name, process in processes.items()
    }
    return used, _python_seconds()

  sleep = _pausing(pause) if pause else 0.0
  work()
  least, most = calls
  timings: list[Cost] = []
  for _ in range(repeats):
    (before, python), started = read(), time.perf_counter()
    done, units, paused = 0, 0.0, 0.0
    while done < least or (done < most and time.perf_counter() - started < seconds):
      if pause:
        asleep = time.perf_counter()
        time.sleep(pause)
        paused += time.perf_counter() - asleep
      units += work()
      done += 1
    wall, (after, python_after) = time.perf_counter() - started - paused, read()
    cpu = {n: (after[n] - before[n]) / units for n in after}
    cpu[here] -= done * sleep / units
    timings.append(Cost(cpu, wall / units, (python_after - python - done * sleep) / units))
  # One whole timing, since medians of the parts would not add up.
  timings.sort(key=lambda timing: sum(timing.cpu.values()))
  whole = timings[len(timings) // 2]
  return whole._replace(wall=statistics.median(timing.wall for timing in timings))
