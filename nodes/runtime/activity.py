"""The activity of this process and its deadline, which its heartbeat reports.

A node marks its activity. `launchers.heartbeat` sends the mark to the launcher once a second, so that
the launcher distinguishes a waiting node from a hanging one. Uses only the standard library.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Activity(NamedTuple):
  """An activity of a node.

  Attributes:
    name: for people, as in 'waiting for replay'.
    progress_factor: deadline for the next mark, in multiples of --node_timeout.
    heartbeat_factor: deadline for the next heartbeat, in the same; above 1 if it may hold the
      interpreter lock.
    is_work: whether a node that does it has finished its start-up.
  """

  name: str
  progress_factor: float
  heartbeat_factor: float = 1.0
  is_work: bool = False


# Activities with a deadline: the node must mark them repeatedly. It marks UNANSWERED once.
STARTING = Activity('starting', 4.0, 4.0)
PLAYING = Activity('playing', 1.0, is_work=True)
UPDATING = Activity('updating', 1.0, is_work=True)
RELABELLING = Activity('relabelling', 1.0, is_work=True)
SERVING = Activity('serving', 1.0, is_work=True)
UNANSWERED = Activity('waiting for a reply from Reverb', 1.0)
RECORDING = Activity('recording a video', 1.0)
LEAVING = Activity('finishing its last writes', 4.0)
# Activities without a deadline.
RUNNING = Activity('running', math.inf)
IDLE = Activity('idle', math.inf)
RESTORING = Activity('restoring a checkpoint', math.inf, math.inf)
COMPILING = Activity('compiling', math.inf)
COMPILED_LOOP = Activity('running the compiled loop', math.inf, is_work=True)
WAITING_FOR_ACTIONS = Activity('waiting for actions', math.inf)
WAITING_FOR_PARAMETERS = Activity('waiting for parameters', math.inf)
WAITING_FOR_REPLAY = Activity('waiting for replay', math.inf)
WAITING_FOR_PEERS = Activity('waiting for another peer', math.inf)
WAITING_FOR_WORKERS = Activity('waiting for workers', math.inf, is_work=True)
WAITING_FOR_REPLICAS = Activity('waiting for another replica', math.inf)
WRITING_CHECKPOINT = Activity('writing a checkpoint', math.inf)


class Mark(NamedTuple):
  """The activity of this process.

  Attributes:
    activity: the latest.
    began: its start, in `time.monotonic()` seconds.
    marked: the time of its latest mark.
  """

  activity: Activity
  began: float
  marked: float


_mark = Mark(RUNNING, time.monotonic(), time.monotonic())
_has_worked = False
_beat: Callable[[], object] | None = None
# Ids of the processes that do part of this node's work. Heartbeats count what they use as the node's.
parts: set[int] = set()


def mark(activity: Activity) -> None:
  """Sets the activity of this process, or renews its deadline; costs less than 1 us."""
  global _has_worked, _mark
  _has_worked = _has_worked or activity.is_work
  now = time.monotonic()
  _mark = Mark(activity, _mark.began if activity is _mark.activity else now, now)


def latest() -> Mark:
  """Returns the latest mark of this process."""
  return _mark


def has_worked() -> bool:
  """Returns whether this process has marked an activity that is work."""
  return _has_worked


def announce_with(beat: Callable[[], object]) -> None:
  """Sets the function that sends a heartbeat at once."""
  global _beat
  _beat = beat


def announce(activity: Activity) -> None:
  """Marks an activity and sends a heartbeat at once."""
  mark(activity)
  if _beat is not None:
    _beat()


@contextlib.contextmanager
def doing(activity: Activity) -> Iterator[None]:
  """Marks an activity, and on exit the previous one; announces one that may be silent."""
  before = _mark.activity
  change = announce if activity.heartbeat_factor > 1.0 else mark
  change(activity)
  try:
    yield
  finally:
    change(before)
