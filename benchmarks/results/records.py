"""What is kept of a run in the repository: a record in the JSON file of its task."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from typing import Any

from benchmarks.results.declared import Entry
from benchmarks.results.places import Places
from rundir import files, option_names

FORMAT = 2


@dataclasses.dataclass(frozen=True)
class Curve:
  """Mean returns on the way, oldest first; lists of the same length.

  Attributes:
    actor_steps, environment_frames: of the parameters that were evaluated.
    seconds: wall time since the command, start-up included; see `attempts.wall_seconds`. It is empty for
      an experiment of bsuite, which records no times.
    mean_return: raw.
    episodes: number of episodes in the mean.
  """

  actor_steps: list[int]
  environment_frames: list[int]
  seconds: list[float]
  mean_return: list[float]
  episodes: list[int]


@dataclasses.dataclass(frozen=True)
class Record:
  """A finished run.

  Attributes:
    row: name of the row.
    seed: of the run.
    settings: see `declared.Row.settings`.
    command: of the run, without its directory.
    curve: the curve.
    returns: what the returns of the curve are, in words.
    final: `mean`, `standard_error` and `episodes` of the final return or score, and its `protocol` in
      words; for an experiment of bsuite also `mean_return_by_id`, for a population also the last
      `member_scores`.
    totals: `actor_steps`, `environment_frames`, `seconds` of wall time, start-up included, and
      `steps_per_second` while it trained, None if it reported too little.
    attempts: see `attempts.Attempt`; more than one for a run that was resumed.
    versions: of the packages, by name.
    options: every option of the run as it was resolved, without its seed and paths; None if they are not
      known. They do not decide whose record it is: a default may change and the record stays.
  """

  row: str
  seed: int
  settings: dict[str, Any]
  command: str
  curve: Curve
  returns: str
  final: dict[str, Any]
  totals: dict[str, Any]
  attempts: list[dict[str, Any]]
  versions: dict[str, str]
  options: dict[str, Any] | None = None


def add(path: str, record: Record) -> None:
  """Writes a record into the file of its task, in place of an earlier one of the same row and seed.

  Runs of a task may end at the same time in several processes of this machine, so a lock is held from
  reading the file to replacing it.

  Args:
    path: the file; it need not exist.
    record: of the run.

  Raises:
    ValueError: as `read`.
  """
  directory = os.path.dirname(path)
  os.makedirs(directory, exist_ok=True)
  lock = os.open(directory, os.O_RDONLY)
  try:
    fcntl.flock(lock, fcntl.LOCK_EX)
    by_run = {(each.row, each.seed): each for each in read(path)}
    by_run[record.row, record.seed] = record
    runs = [dataclasses.asdict(each) for _, each in sorted(by_run.items())]
    files.write(path, (_text({'format': FORMAT, 'runs': runs}, '') + '\n').encode())
  finally:
    os.close(lock)


def read(path: str) -> list[Record]:
  """Returns the records in the file of a task, by row and seed; [] if there is no file.

  Raises:
    ValueError: the file does not hold records of this version; one sentence that names it.
  """
  try:
    with open(path) as f:
      values = json.load(f)
    if values['format'] != FORMAT:
      raise ValueError('it has another format')
    return [_record(run) for run in values['runs']]
  except FileNotFoundError:
    return []
  except (ValueError, LookupError, TypeError) as error:
    raise ValueError(f'{path} does not hold records of runs: {error}.') from error


def current_settings(settings: dict[str, Any]) -> dict[str, Any]:
  """Returns the recorded settings of a row with the option names of this version."""
  if 'preset' not in settings:
    return settings
  return {**settings, 'preset': option_names.current(settings['preset'])}


def of_row(entry: Entry, places: Places) -> dict[int, Record]:
  """Returns the records of a row by seed, for the declared seeds and in their order.

  A record of other settings belongs to an earlier declaration of the row and is left out.

  Raises:
    ValueError: as `read`.
  """
  settings = entry.row.settings()
  found = {
    record.seed: record
    for record in read(places.records(entry))
    if record.row == entry.name and record.settings == settings
  }
  return {seed: found[seed] for seed in entry.row.seeds if seed in found}


def _record(run: dict[str, Any]) -> Record:
  """Returns the record in a file, with the option names of this version."""
  record = Record(**run | {'curve': Curve(**run['curve'])})
  options = None if record.options is None else option_names.current(record.options)
  return dataclasses.replace(record, settings=current_settings(record.settings), options=options)


def _text(value: Any, indent: str) -> str:
  """Returns JSON in which a list of numbers is one line."""
  if isinstance(value, dict) and value:
    inner = indent + ' '
    lines = [f'{inner}{json.dumps(k)}: {_text(v, inner)}' for k, v in value.items()]
    return '{\n' + ',\n'.join(lines) + f'\n{indent}}}'
  if isinstance(value, list) and any(isinstance(v, dict) for v in value):
    inner = indent + ' '
    return '[\n' + ',\n'.join(inner + _text(v, inner) for v in value) + f'\n{indent}]'
  return json.dumps(value)
