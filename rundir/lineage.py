"""The lineage of a population: the scores of its members, who copied whom, and the values of each.

One event is one line of JSON in `lineage.jsonl`. The leaderboard decides an event and appends it in one
step, so the file is also what it restarts from.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any, NamedTuple

from rundir import reading
from rundir.appending import AppendedFile

_NAME = re.compile(r'[A-Za-z0-9_]+')


class Event(NamedTuple):
  """A member has a new score, and goes on or is replaced.

  Attributes:
    event: its number, from 1.
    time: in seconds since 1970.
    member: its number.
    incarnation: of the member.
    number: of its report, in this incarnation.
    counts: its counters.
    score: None if its parameters were no longer finite.
    values: of the tuned options, with which it got the score.
    source: the event whose parameters it continues with; None for its own.
    source_member: the member of that event; None for itself.
    next_values: of the tuned options, with which it continues.
  """

  event: int
  time: float
  member: int
  incarnation: int
  number: int
  counts: dict[str, int]
  score: float | None
  values: dict[str, float]
  source: int | None
  source_member: int | None
  next_values: dict[str, float]


def path(run_dir: str) -> str:
  """Returns the file of a run's lineage."""
  return os.path.join(run_dir, 'lineage.jsonl')


def read(run_dir: str) -> list[Event]:
  """Returns the events of a run, oldest first; [] if it has none. Lines that hold none are left out."""
  try:
    with reading.opened(path(run_dir)) as file:
      lines = file.read().split(b'\n')[:-1]
  except FileNotFoundError:
    return []
  return [event for event in map(_event, lines) if event is not None]


def _event(line: bytes) -> Event | None:
  try:
    event = Event(**json.loads(line))
  except (ValueError, TypeError, RecursionError):
    return None
  whole = event.event, event.member, event.incarnation, event.number
  known = [event.time] if event.score is None else [event.time, event.score]
  sources = [n for n in (event.source, event.source_member) if n is not None]
  fits = (
    all(type(n) is int for n in (*whole, *sources))
    and all(reading.is_number(n) and math.isfinite(n) for n in known)
    and all(map(_are_values, (event.counts, event.values, event.next_values)))
    and len(sources) != 1
  )
  return event if fits else None


def _are_values(found: Any) -> bool:
  """Returns whether these are numbers by the names of options or counters."""
  return isinstance(found, dict) and all(
    _NAME.fullmatch(name) and reading.is_number(value) for name, value in found.items()
  )


class Lineage:
  """Appends events to the lineage of a run."""

  def __init__(self, run_dir: str):
    """Opens or creates the file; an event that a killed process has not completed is dropped."""
    os.makedirs(run_dir, exist_ok=True)
    self._file = AppendedFile(path(run_dir))
    self._file.drop_unfinished_line()

  def append(self, *events: Event) -> None:
    """Appends some events.

    Raises:
      OSError: if there is no room for them; the file is unchanged.
    """
    self._file.append(b''.join(json.dumps(event._asdict()).encode() + b'\n' for event in events))
