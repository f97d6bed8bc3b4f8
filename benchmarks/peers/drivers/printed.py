"""Progress of scripts that print it: `global_step=...` and `avg_episodic_return=...` in a line."""

from __future__ import annotations

import io
import re

from progress import Progress

_PRINTED = re.compile(r'global_step=(\d+), avg_episodic_return=([-\d.einfa]+)')


def parse(line: str) -> tuple[int, float] | None:
  """Returns the steps and the mean return in a line of a script; None for other lines."""
  found = _PRINTED.search(line)
  return (int(found[1]), float(found[2])) if found else None


class Listener(io.TextIOBase):
  """Stdout of a script: reports its progress lines and drops the others."""

  def __init__(self, progress: Progress):
    self._progress = progress

  def write(self, text: str) -> int:
    """Handles a printed text; `print` writes a line in one piece."""
    for line in text.splitlines():
      if (found := parse(line)) is not None:
        steps, mean = found
        self._progress.tell(steps, steps, mean)
    return len(text)
