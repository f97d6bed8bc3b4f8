"""Standard streams that may be closed, or missing from the start."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO


def say(sentence: str, file: IO[str] | None = None) -> None:
  """Prints a sentence, to stdout if `file` is None. Ignores a closed terminal."""
  with contextlib.suppress(OSError, ValueError):
    print(sentence, file=file, flush=True)


def ensure_streams() -> None:
  """Opens the null device as stdout or stderr if the process was started without it."""
  for name in ('stdout', 'stderr'):
    if getattr(sys, name) is None:
      setattr(sys, name, open(os.devnull, 'w'))  # noqa: SIM115  is open as long as the process


def flush() -> None:
  """Flushes stdout and stderr. Ignores a closed terminal."""
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, ValueError):
      stream.flush()
