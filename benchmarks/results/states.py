"""How far a row is."""

from __future__ import annotations

import os
from typing import NamedTuple

from benchmarks.results import records
from benchmarks.results.declared import Entry
from benchmarks.results.places import Places
from rundir import directory_lock

DONE, RUNNING, STARTED, MISSING = 'done', 'running', 'started', 'missing'


class State(NamedTuple):
  """The state of a row.

  Attributes:
    words: `DONE`, `RUNNING` (a run of it is in progress), `STARTED` or `MISSING`.
    done: number of declared seeds with a record.
  """

  words: str
  done: int


def of_row(entry: Entry, places: Places) -> State:
  """Returns the state of a row.

  Raises:
    ValueError: a record cannot be read; one sentence.
  """
  done = len(records.of_row(entry, places))
  run_dirs = [places.run_dir(entry, seed) for seed in entry.row.seeds]
  if done == len(entry.row.seeds):
    words = DONE
  elif any(map(directory_lock.is_taken, run_dirs)):
    words = RUNNING
  else:
    words = STARTED if done or any(map(os.path.exists, run_dirs)) else MISSING
  return State(words, done)
