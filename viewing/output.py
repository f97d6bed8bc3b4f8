"""Commands whose readers may go before they have printed all."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from rich.console import Console

READER_GONE = 128 + signal.SIGPIPE


class Pipe(Console):
  """A console that leaves it to `run` what becomes of a command without a reader."""

  def on_broken_pipe(self) -> None:
    """Raises; rich would end the process here."""
    raise BrokenPipeError


def run(main: Callable[[], int]) -> int:
  """Runs a command; returns its exit code, or that of one whose reader has gone.

  Args:
    main: prints, and returns its exit code.
  """
  if sys.stdout is None:  # Of a shell's >&-.
    sys.stdout = open(os.devnull, 'w')  # noqa: SIM115  as long as the process
  try:
    code = main()
    sys.stdout.flush()
    return code
  except BrokenPipeError:
    # Python flushes once more when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE
