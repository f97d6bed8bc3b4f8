"""How a driver tells its progress: a JSON line on standard output."""

from __future__ import annotations

import json
import math
import sys
import time


class Progress:
  """Prints lines of `seconds`, `steps`, `learned` and `episode_return`, not oftener than is of use."""

  def __init__(self, started: float, period: float = 0.25):
    """Initialises.

    Args:
      started: when the command was given, in Unix time.
      period: seconds between lines at least.
    """
    self._started = started
    self._period = period
    self._last = 0.0
    # What libraries replace, or print to, is not where the lines go.
    self._out = sys.__stdout__

  def tell(self, steps: float, learned: float, episode_return: float = math.nan) -> None:
    """Prints a line if one is due.

    Args:
      steps: agent decisions so far.
      learned: those of them that the learner has learned from.
      episode_return: mean of the last training episodes; NaN before the first has ended.
    """
    now = time.time()
    if now - self._last < self._period:
      return
    self._last = now
    value = float(episode_return)
    line = {
      'seconds': now - self._started,
      'steps': int(steps),
      'learned': int(learned),
      'episode_return': value if math.isfinite(value) else None,
    }
    print(json.dumps(line), file=self._out, flush=True)
