"""What a call costs: for choices that are made before a program starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

_TIMINGS = 5
_SECONDS = 0.02


class Cost(NamedTuple):
  """What a call takes, in seconds.

  Attributes:
    cpu: CPU time of all threads of this process.
    wall: wall-clock time.
  """

  cpu: float
  wall: float


def cost(call: Callable[[Any], Any], prepare: Callable[[], Any] = lambda: None) -> Cost:
  """Returns the least mean of some timings, which other work on the machine disturbs least.

  Each timing lasts 0.02 seconds, or one call if that takes longer. One call before them is not timed.

  Args:
    call: what is timed; takes what `prepare` returns.
    prepare: called before each call; is not timed.
  """
  call(prepare())
  timings = [_timing(call, prepare) for _ in range(_TIMINGS)]
  return Cost(*map(min, zip(*timings, strict=True)))


def _timing(call: Callable[[Any], Any], prepare: Callable[[], Any]) -> Cost:
  """Returns the mean cost of the calls of one timing."""
  calls, cpu, wall = 0, 0.0, 0.0
  while not calls or wall < _SECONDS:
    prepared = prepare()
    before = time.process_time(), time.perf_counter()
    call(prepared)
    cpu += time.process_time() - before[0]
    wall += time.perf_counter() - before[1]
    calls += 1
  return Cost(cpu / calls, wall / calls)
