"""Measures one run of a system, starting at its command."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

from benchmarks.peers import reports
from benchmarks.peers.systems import Run
from benchmarks.peers.tree import Tree

_POLL_SECONDS = 0.25
# Reading the memory of a process costs some milliseconds.
_MEMORY_SECONDS = 5.0
# Timeout of the first steps, and between reports.
_SILENCE_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class Plan:
  """The length of a measurement.

  Attributes:
    warm_up: seconds between the first steps and the measurement.
    seconds: minimum length of the measurement, which ends with a report.
    threshold: the return for `seconds_to_return`; None for none.
    until_return: whether the run ends at that return.
  """

  warm_up: float
  seconds: float
  threshold: float | None
  until_return: bool


def follow(run: Run, tree: Tree, plan: Plan, action_repeat: int) -> dict[str, Any]:
  """Measures a run.

  Returns:
    seconds_to_first_steps: from the command.
    steps_per_second, learned_steps_per_second, frames_per_second: over the window; None if the run
      ended before it.
    seconds_to_return: from the command; None if the run did not reach the threshold.
    episode_return: the last reported return, or None.
    peak_memory: bytes (PSS) of all processes together, the maximum of several readings.
    processes: number of processes at that reading.
    cores_busy: CPU seconds of all processes per second of the window; None as the rates.
    cpu_us_per_step: microseconds of CPU time of all processes per step; None as the rates.
    reports: as `reports.Report`, None for NaN.

  Raises:
    AssertionError: the run ended by itself, or did not report before the timeout.
  """
  peak = tree.use()
  at_begin: tuple[float, float] | None = None
  next_reading = last_news = time.monotonic()
  reports_seen: list[reports.Report] = []
  while True:
    time.sleep(_POLL_SECONDS)
    run.check()
    now, before, reports_seen = time.monotonic(), len(reports_seen), run.reports()
    last_news = now if len(reports_seen) > before else last_news
    silent = now - last_news
    assert silent < _SILENCE_SECONDS, f'no report for {silent:.0f} seconds:\n{run.last_words()}'
    first = reports.first_steps(reports_seen)
    begin = None if first is None else first + plan.warm_up
    window = [] if begin is None else [r for r in reports_seen if r.seconds >= begin]
    if window and at_begin is None:
      at_begin = now, tree.use().cpu
    if now >= next_reading:
      peak = max(peak, tree.use())
      next_reading = now + _MEMORY_SECONDS
    reached = reports.seconds_to(reports_seen, plan.threshold)
    if plan.until_return and reached is not None:
      break
    if window and window[-1].seconds >= window[0].seconds + plan.seconds:
      break
  used = tree.use()
  steps = reports.rate(window, 'steps')
  busy = None
  if steps is not None and at_begin is not None:
    busy = (used.cpu - at_begin[1]) / (time.monotonic() - at_begin[0])
  peak = max(peak, used)
  numbers = [
    [None if math.isnan(number) else number for number in report] for report in reports_seen
  ]
  return {
    'seconds_to_first_steps': first,
    'steps_per_second': steps,
    'learned_steps_per_second': reports.rate(window, 'learned'),
    'frames_per_second': None if steps is None else steps * action_repeat,
    'seconds_to_return': reached,
    'episode_return': numbers[-1][-1],
    'peak_memory': peak.memory,
    'processes': peak.processes,
    'cores_busy': busy,
    'cpu_us_per_step': None if busy is None or not steps else 1e6 * busy / steps,
    'reports': numbers,
  }
