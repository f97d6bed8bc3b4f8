"""How a node learns that the program is stopping, and how it stops the program."""

from __future__ import annotations

import threading

import launchpad as lp


class Stopped(Exception):
  """The program is stopping."""


def stop_event() -> threading.Event:
  """Returns the event that is set when the program stops.

  Call it from the node's own thread. Outside a launched program, as in unit tests, it is an event
  that nobody sets.
  """
  try:
    return lp.stop_event()
  except RuntimeError:
    return threading.Event()


def stop_program() -> None:
  """Asks the launcher to stop every node. Call it from the node's own thread."""
  lp.stop()
