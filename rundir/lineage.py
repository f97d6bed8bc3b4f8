"""The lineage of a population: the scores of its members, who copied whom, and the values of each.

One event is one line of JSON in `lineage.jsonl`. The leaderboard decides an event and appends it in one
step, so the file is also what it restarts from.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from rundir import reading
from rundir.appending import AppendedFile


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
  """Returns the complete events of a run, oldest first; [] if it has none."""
  try:
    with reading.opened(path(run_dir)) as file:
      lines = file.read().split(b'\n')[:-1]
  except FileNotFoundError:
    return []
  return [Event(**json.loads(line)) for line in lines]


class Lineage:
  """Appends events to the lineage of a run."""

  def __init__(self, run_dir: str):
    """Opens or creates the file; an event that a killed process has not completed is dropped."""
    os.makedirs(run_dir, exist_ok=True)
    self._file = AppendedFile(path(run_dir))
    self._file.drop_unfinished_line()

  def append(self, event: Event) -> None:
    """Appends an event.

    Raises:
      OSError: if there is no room for it; the file is unchanged.
    """
    fields: dict[str, Any] = event._asdict()
    self._file.append(json.dumps(fields).encode() + b'\n')
