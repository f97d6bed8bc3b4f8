"""What is kept of a run in the repository: one small JSON file."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from benchmarks.results.declared import Entry
from benchmarks.results.places import Places

FORMAT = 1


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
      words; for an experiment of bsuite also `mean_return_by_id`.
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


def write(path: str, record: Record) -> None:
  """Writes a record, with one line for each list of numbers."""
  os.makedirs(os.path.dirname(path), exist_ok=True)
  values = {'format': FORMAT, **dataclasses.asdict(record)}
  partial = path + '.tmp'
  with open(partial, 'w') as f:
    f.write(_text(values, '') + '\n')
  os.replace(partial, path)


def read(path: str) -> Record | None:
  """Returns a record; None if there is none.

  Raises:
    ValueError: the file is no record of this version; one sentence that names it.
  """
  try:
    with open(path) as f:
      values = json.load(f)
    if values.pop('format') != FORMAT:
      raise ValueError('it has another format')
    return Record(**values | {'curve': Curve(**values['curve'])})
  except FileNotFoundError:
    return None
  except (ValueError, LookupError, TypeError) as error:
    raise ValueError(f'{path} is not a record of a run: {error}.') from error


def of_row(entry: Entry, places: Places) -> dict[int, Record]:
  """Returns the records of a row by seed, for the declared seeds.

  A record of other settings belongs to an earlier declaration of the row and is left out.

  Raises:
    ValueError: as `read`.
  """
  found = {seed: read(places.record(entry, seed)) for seed in entry.row.seeds}
  settings = entry.row.settings()
  return {seed: r for seed, r in found.items() if r is not None and r.settings == settings}


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
