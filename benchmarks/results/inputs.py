"""Runs that the runs of other rows read."""

from __future__ import annotations

from benchmarks.results import attempts
from benchmarks.results.declared import Entry, Launch
from benchmarks.results.places import Places
from sweeps import commands


def missing(entry: Entry, seed: int, places: Places) -> list[Entry]:
  """Returns the rows whose runs a run reads and that are not there, in the order to run them."""
  found: list[Entry] = []
  if isinstance(entry.row, Launch):
    for row in entry.row.inputs.values():
      source = Entry(entry.task, row)
      if not _is_there(source, seed, places):
        found += [*missing(source, seed, places), source]
  return list({source.name: source for source in found}.values())


def _is_there(entry: Entry, seed: int, places: Places) -> bool:
  """Returns whether the directory of a run is the row's, and the run has ended."""
  made = attempts.read(places.attempts(entry, seed))
  is_the_rows = made is not None and made.settings == entry.row.settings()
  return is_the_rows and commands.trained(places.run_dir(entry, seed))
