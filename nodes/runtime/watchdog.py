"""Detects that the work of a thread hangs, while another thread of the node waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable

# Far above a batch or a write, under any load. Nodes do not know --node_timeout, which may be shorter.
LIMIT_SECONDS = 300.0
# Between two checks, more is the time of a suspended process.
_MOST_SECONDS = 30.0


class Watchdog:
  """Watches the pieces of work of one thread, each in `with watch:`.

  The thread reads no clock: `check` counts the seconds for which it has seen the same piece.
  """

  def __init__(self, what: str, clock: Callable[[], float] = time.monotonic):
    """Initialises with what a piece of work is, in words, and a function that returns the time."""
    self._what = what
    self._clock = clock
    self._begun = self._ended = 0
    self._seen, self._seconds, self._checked = 0, 0.0, clock()

  def __enter__(self) -> None:
    self._begun += 1

  def __exit__(self, *raised: object) -> None:
    self._ended = self._begun

  def check(self) -> None:
    """Raises TimeoutError if the current piece has taken longer than `LIMIT_SECONDS`; call it often."""
    now, piece = self._clock(), self._begun
    passed, self._checked = min(now - self._checked, _MOST_SECONDS), now
    same = piece == self._seen and piece != self._ended
    self._seen, self._seconds = piece, self._seconds + passed if same else 0.0
    if self._seconds > LIMIT_SECONDS:
      raise TimeoutError(f'{self._what} has taken longer than {LIMIT_SECONDS:.0f} s: it hangs.')
