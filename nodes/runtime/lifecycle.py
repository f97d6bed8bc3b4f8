"""A node's lifecycle: its incarnation, the stop event, and stopping the program."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator

import launchpad as lp

# Re-exported: nodes raise `lifecycle.NonRetryableError`.
from rundir.errors import NonRetryableError as NonRetryableError

# Environment variable with a token that is unique to a launch and shared by its nodes.
RUN_VARIABLE = 'LAUNCHPOD_RUN'
# Environment variable with the number of restarts of a node in this launch.
RESTART_COUNT_VARIABLE = 'LAUNCHPOD_RESTART_COUNT'
# Threads with this name finish before exit, unless the launcher kills the process.
FINISH = 'finish-before-leaving'


class Stopped(Exception):
  """The program is stopping."""


def restart_count() -> int:
  """Returns the number of restarts of this node in this launch."""
  return int(os.environ.get(RESTART_COUNT_VARIABLE, '0'))


def new_incarnation() -> int:
  """Returns a random identifier of a new incarnation: of a node, or of an evaluation."""
  return secrets.randbits(62)


def run_token() -> str:
  """Returns the secret token of this run's processes; '' outside a launched program."""
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


def run_before_exit(work: Callable[[], object]) -> threading.Thread:
  """Runs `work` in a thread that a stopping process finishes before it exits.

  The process waits for such threads before it exits, as long as the launcher allows.
  """
  thread = threading.Thread(target=work, name=FINISH)
  thread.start()
  return thread


@contextlib.contextmanager
def exit_held() -> Iterator[None]:
  """Keeps a stopping process from exiting until the block ends, as long as the launcher allows."""
  ended = threading.Event()
  run_before_exit(ended.wait)
  try:
    yield
  finally:
    ended.set()


def program_stopper() -> Callable[[], None]:
  """Returns what any thread may call to stop every node. Call it from the node's own thread.

  Outside a launched program, as in unit tests, it does nothing.
  """
  try:
    return lp.context.get_context().program_stopper
  except AssertionError:
    return lambda: None


def stop_program() -> None:
  """Asks the launcher to stop every node. Call it from the node's own thread."""
  lp.stop()
