"""Brings rows to their records, one run after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from benchmarks.results import experiments, inputs, launches, peer_runs, records
from benchmarks.results.declared import Entry, Experiment, Launch, Peer
from benchmarks.results.failed import Failed
from benchmarks.results.places import Places
from rundir import directory_lock


class Runner:
  """Runs what is not recorded yet, and prints what it does."""

  def __init__(self, places: Places, scripts: Mapping[str, str], wheels: str):
    """Initialises the runner.

    Args:
      places: where the files go.
      scripts, wheels: see `peer_runs.run`.
    """
    self._places = places
    self._scripts = scripts
    self._wheels = wheels
    self._failed: dict[str, str] = {}

  def run(self, entries: Sequence[Entry], seeds: Sequence[int]) -> list[str]:
    """Runs `seeds` of rows, or all their declared ones; returns a line for each that failed."""
    for entry in entries:
      for seed in seeds or entry.row.seeds:
        if seed not in records.of_row(entry, self._places):
          self._bring(entry, seed)
    return [f'{name}: {why}' for name, why in self._failed.items()]

  def _bring(self, entry: Entry, seed: int) -> None:
    """Brings a run to its record, after the runs that it reads."""
    for source in inputs.missing(entry, seed, self._places):
      name = _name(source, seed)
      if name not in self._failed:
        if seed in records.of_row(source, self._places):
          print(f'{name}: its run directory is gone, and {entry.name} reads it', flush=True)
        self._try(source, seed)
      if name in self._failed:
        self._fail(entry, seed, f'it reads the run of {source.name}, which failed')
        return
    if _name(entry, seed) not in self._failed:
      self._try(entry, seed)

  def _try(self, entry: Entry, seed: int) -> None:
    name = _name(entry, seed)
    print(f'{name}: runs, {self._places.run_dir(entry, seed)}', flush=True)
    began = time.monotonic()
    try:
      self._run(entry, seed)
    except Failed as error:
      self._fail(entry, seed, str(error))
      return
    record = records.of_row(entry, self._places)[seed]
    seconds = time.monotonic() - began
    print(f'{name}: {entry.task.measure} {record.final["mean"]:.4g}, {seconds:.0f} s', flush=True)

  def _run(self, entry: Entry, seed: int) -> None:
    """Makes a run and its record.

    Raises:
      Failed: it came to no result.
    """
    if directory_lock.is_taken(self._places.run_dir(entry, seed)):
      raise Failed('another command runs it now')
    if isinstance(entry.row, Launch):
      launches.run(entry, entry.row, seed, self._places)
    elif isinstance(entry.row, Experiment):
      experiments.run(entry, entry.row, seed, self._places)
    else:
      assert isinstance(entry.row, Peer)
      peer_runs.run(entry, entry.row, seed, self._places, self._scripts, self._wheels)

  def _fail(self, entry: Entry, seed: int, why: str) -> None:
    name = _name(entry, seed)
    self._failed[name] = why
    print(f'{name}: failed, {why}', flush=True)


def _name(entry: Entry, seed: int) -> str:
  return f'{entry.name} seed {seed}'
