"""Runs commands that may be stopped, or whose output pipe may be closed, before they have ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from launchers import stop_requests, streams
from launchers.console import PlainConsole

READER_GONE = 128 + signal.SIGPIPE


class Pipe(PlainConsole):
  """A console that leaves broken pipes to `run`."""

  def on_broken_pipe(self) -> None:
    """Raises BrokenPipeError; rich would exit here."""
    raise BrokenPipeError


def run(main: Callable[[], int]) -> int:
  """Runs a command; returns its exit code.

  That is READER_GONE if its output pipe was closed, and 128 plus the number of a signal that stopped it.

  Args:
    main: the command; returns its exit code.
  """
  streams.ensure_streams()
  try:
    with stop_requests.raised():
      code = main()
      sys.stdout.flush()
    return code
  except stop_requests.StopRequested as stop:
    return stop.exit_code
  except BrokenPipeError:
    # Python flushes again on exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE
