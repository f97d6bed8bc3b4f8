"""How long evaluations may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

FREE_SECONDS = 2.0  # Of every evaluation; they count against no share.


class EvaluationBudget:
  """Limits the time of evaluations to a share of the wall time.

  Only what an evaluation takes beyond `FREE_SECONDS` counts. An evaluation always plays its first round
  of episodes to the end, one in each environment, so it may overdraw. The next one then waits.
  """

  def __init__(
    self, share: float, final_seconds: float, clock: Callable[[], float] = time.monotonic
  ):
    """Initialises a budget.

    Args:
      share: in (0, 1], of the time since now; 1 for no limit.
      final_seconds: of the final evaluation; 0 for no limit.
      clock: returns seconds.
    """
    self._share = share
    self._final_seconds = final_seconds
    self._clock = clock
    self._began = clock()
    self._taken = 0.0

  def allows_another(self) -> bool:
    """Returns whether an evaluation may begin now."""
    return self._left() >= 0.0

  def begin(self, final: bool) -> Callable[[], bool]:
    """Begins an evaluation; returns a function that says whether its time is up."""
    allowed = (self._final_seconds or math.inf) if final else FREE_SECONDS + max(0.0, self._left())
    deadline = self._clock() + allowed
    return lambda: self._clock() >= deadline

  def took(self, seconds: float, free: float = FREE_SECONDS) -> None:
    """Counts an evaluation that has ended, except for its first `free` seconds."""
    self._taken += max(0.0, seconds - free)

  def _left(self) -> float:
    if self._share >= 1.0:
      return math.inf
    return self._share * (self._clock() - self._began) - self._taken
