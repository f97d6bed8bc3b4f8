"""What this process is doing, and for how long it may: the text of its heartbeat.

A node marks what it does. `launchers.heartbeat` sends the mark to the launcher once a second, so the
launcher tells a node that waits from a node that hangs. Needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import NamedTuple


class Activity(NamedTuple):
  """Something that a node does.

  Attributes:
    name: for people, as in 'waits for replay'.
    patience: how long it may last without another mark, in multiples of --node_timeout.
  """

  name: str
  patience: float


# Progress is expected of these: a node that does one of them marks it again and again.
STARTING = Activity('starting', 4.0)
PLAYING = Activity('playing', 1.0)
UPDATING = Activity('updating', 1.0)
SERVING = Activity('serving', 1.0)
# These last as long as they last.
RUNNING = Activity('running', math.inf)
IDLE = Activity('idle', math.inf)
COMPILING = Activity('compiling', math.inf)
COMPILED_LOOP = Activity('in a call of the compiled loop', math.inf)
WAITING_FOR_ACTIONS = Activity('waits for actions', math.inf)
WAITING_FOR_PARAMETERS = Activity('waits for parameters', math.inf)
WAITING_FOR_REPLAY = Activity('waits for replay', math.inf)
WAITING_FOR_REPLICAS = Activity('waits for another replica', math.inf)
WRITING_CHECKPOINT = Activity('writing a checkpoint', math.inf)


class Mark(NamedTuple):
  """The activity of this process.

  Attributes:
    activity: the latest.
    began: when it began, as `time.monotonic()` says.
    marked: when it was marked last.
  """

  activity: Activity
  began: float
  marked: float


_mark = Mark(RUNNING, time.monotonic(), time.monotonic())


def mark(activity: Activity) -> None:
  """Says what the process does from now on, or that it still does so; costs less than 1 us."""
  global _mark
  now = time.monotonic()
  _mark = Mark(activity, _mark.began if activity is _mark.activity else now, now)


def latest() -> Mark:
  """Returns the latest mark of this process."""
  return _mark


@contextlib.contextmanager
def doing(activity: Activity) -> Iterator[None]:
  """Marks an activity, and at its end the one before it."""
  before = _mark.activity
  mark(activity)
  try:
    yield
  finally:
    mark(before)
