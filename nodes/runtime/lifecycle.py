"""How a node learns that the program is stopping, and how it stops the program."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable

import launchpad as lp

# Nodes raise it by this name.
from rundir.errors import NonRetryableError as NonRetryableError

# Holds a token that every node of a launch has, and no other.
RUN_VARIABLE = 'LAUNCHPOD_RUN'
# Threads of this name are let finish, unless the launcher kills the process.
FINISH = 'finish-before-leaving'


class Stopped(Exception):
  """The program is stopping."""


def restart_count() -> int:
  """Returns how often the node has been started before, in this launch."""
  return int(os.environ.get('LAUNCHPOD_LIFE', '0'))


def new_incarnation() -> int:
  """Returns a random number, the identity of what begins now: a life of a node, or an evaluation."""
  return secrets.randbits(62)


def run_token() -> str:
  """Returns what only the processes of this run know; '' outside a launched program."""
  return os.environ.get(RUN_VARIABLE, '')


def stop_event() -> threading.Event:
  """Returns the event that is set when the program stops.

  Call it from the node's own thread. Outside a launched program, as in unit tests, it is an event
  that is never set.
  """
  try:
    return lp.stop_event()
  except RuntimeError:
    return threading.Event()


def run_before_exit(work: Callable[[], None]) -> threading.Thread:
  """Starts work that a process which is asked to stop still finishes before it leaves.

  The process waits for threads of this name before it exits, as long as the launcher allows it.
  """
  thread = threading.Thread(target=work, name=FINISH)
  thread.start()
  return thread


def stop_program() -> None:
  """Asks the launcher to stop every node. Call it from the node's own thread."""
  lp.stop()
