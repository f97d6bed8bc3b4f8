"""Progress reports of a driver: JSON lines on stdout."""

from __future__ import annotations

import json
import math
import sys
import time


class Progress:
  """Prints lines of `seconds`, `steps`, `learned` and `episode_return`, at a limited rate."""

  def __init__(self, started: float, period: float = 0.25):
    """Initialises.

    Args:
      started: Unix time of the command.
      period: minimum seconds between lines.
    """
    self._started = started
    self._period = period
    self._last = 0.0
    self._pending = ''
    # Libraries may replace or print to sys.stdout; the lines go elsewhere.
    self._out = sys.__stdout__

  def tell(self, steps: float, learned: float, episode_return: float = math.nan) -> None:
    """Prints a line if one is due.

    Args:
      steps: agent decisions so far.
      learned: the steps that the learner has trained on.
      episode_return: mean of the last training episodes; NaN before the end of the first.
    """
    now = time.time()
    value = float(episode_return)
    line = {
      'seconds': now - self._started,
      'steps': int(steps),
      'learned': int(learned),
      'episode_return': value if math.isfinite(value) else None,
    }
    self._pending = json.dumps(line)
    if now - self._last >= self._period:
      self._last = now
      self._print_pending()

  def conclude(self, returns: list[float], protocol: str) -> None:
    """Prints the last line, if it was not due, and the final evaluation.

    Args:
      returns: of its episodes.
      protocol: in words, such as 'greedy, 100 whole episodes'.
    """
    mean = math.fsum(returns) / len(returns)
    variance = math.fsum((value - mean) ** 2 for value in returns) / max(1, len(returns) - 1)
    evaluated = {
      'mean': mean,
      'standard_error': math.sqrt(variance / len(returns)),
      'episodes': len(returns),
      'protocol': protocol,
    }
    self._print_pending()
    print(json.dumps({'final': evaluated}), file=self._out, flush=True)

  def _print_pending(self) -> None:
    if self._pending:
      print(self._pending, file=self._out, flush=True)
    self._pending = ''
