"""What comes before the first run of a sweep: its directory is claimed, and every run checked."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from launchers import streams
from launchers.engine import Job
from rundir import directory_lock, secrets, sweep_directory
from rundir.sweep_directory import Record
from sweeps import commands, planning
from sweeps.spec import Sweep


def check_directory(sweep: Sweep, directory: str) -> None:
  """Checks what `claim` would reject, and changes nothing.

  Raises:
    ValueError: the directory cannot be read, or holds something else, or runs with other flags; one
      sentence.
  """
  try:
    _check_usable(directory)
  except OSError as error:
    raise ValueError(f'{directory} cannot be read: {error.strerror}.') from error
  record = sweep_directory.read(directory)
  if record is not None:
    check_flags(sweep, directory, record)


def claim(sweep: Sweep, directory: str) -> Record:
  """Makes and locks the directory of a sweep for this process; returns its record.

  Args:
    sweep: the sweep.
    directory: its directory, new or of an earlier command.

  Raises:
    ValueError: it is in use, cannot be written, or holds something else; one sentence.
  """
  try:
    _check_usable(directory)
    os.makedirs(directory, exist_ok=True)
    directory_lock.take(directory)
    record = sweep_directory.read(directory)
    if record is None:
      record = Record(dict(sweep.flags), [])
      sweep_directory.write(directory, record)
  except BlockingIOError as error:
    raise ValueError(f'{directory} is in use by a sweep that is still running.') from error
  except OSError as error:
    raise ValueError(f'{directory} cannot be written: {error.strerror}.') from error
  check_flags(sweep, directory, record)
  return record


def _check_usable(directory: str) -> None:
  if not commands.unused(directory) and not sweep_directory.is_sweep(directory):
    raise ValueError(f'{directory} is not empty, and no sweep; name a new directory.')


def check_flags(sweep: Sweep, directory: str, record: Record) -> None:
  """Raises ValueError, one sentence, if the runs of a directory share other flags."""
  for name in sorted(record.flags.keys() | sweep.flags.keys()):
    before, now = record.flags.get(name), sweep.flags.get(name)
    if before != now:
      words = [f'no --{name}' if x is None else f'--{name}={x}' for x in (before, now)]
      earlier, here = secrets.masked_command(words)
      raise ValueError(
        f'{directory} has runs with {earlier}, and now there is {here}; name a new directory, or give '
        'the flags of before.'
      )


def checked(sweep: Sweep) -> tuple[int, str]:
  """Checks every run of a sweep that is known before the first; starts nothing.

  Prints what launch.py would warn about, each sentence once.

  Returns:
    How many programs run at once, and why, in words.

  Raises:
    ValueError: launch.py would refuse a run, or a run would lack the metric; one sentence.
  """
  jobs: list[Job] = []
  warnings: list[str] = []
  for i, values in enumerate(sweep.trials):
    seeds = {sweep.seeds[0], *((min(sweep.seeds), max(sweep.seeds)) if i == 0 else ())}
    for seed in sorted(seeds):
      made = job(sweep, values, seed)
    sweep.metric.check_job(made, sweep.source)
    jobs.append(made)
    warnings += made.warnings
  for sentence in dict.fromkeys(warnings):
    streams.say(f'warning: {sentence}', sys.stderr)
  if sweep.jobs:
    return sweep.jobs, f'as {sweep.source} says'
  return planning.at_once(jobs)


def job(sweep: Sweep, values: Mapping[str, Any], seed: int) -> Job:
  """Returns the job of a run.

  Raises:
    ValueError: launch.py would refuse it; one sentence that names the flags of the trial.
  """
  try:
    return planning.job(sweep.command(values, seed))
  except ValueError as error:
    where = f'{sweep.source}: with {flags_of(sweep, values)}: ' if values else ''
    raise ValueError(f'{where}{error}') from error


def flags_of(sweep: Sweep, values: Mapping[str, Any]) -> str:
  """Returns the flags of a trial alone as text, without secrets."""
  words = [word for word in sweep.command(values) if word.partition('=')[0][2:] in values]
  return ' '.join(secrets.masked_command(words))


def trials_of(sweep: Sweep, record: Record) -> list[tuple[int, Mapping[str, Any]]]:
  """Returns the numbers and flags of the recorded trials that a sweep has."""
  mine = sweep.make_search().begin(record.trials)
  return [(number(sweep, i), record.trials[i]) for i in mine]


def number(sweep: Sweep, position: int) -> int:
  """Returns the number of a recorded trial; 0 in a sweep over seeds alone."""
  return position + 1 if sweep.axes else 0
