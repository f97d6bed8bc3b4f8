"""The directory of a sweep: its record, the directories of its runs, and how each run ended."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

from rundir import directory_lock, files, reading, run_directory, secrets

FORMAT = 1
_RECORD = 'sweep.json'
_RUN = re.compile(r'(?:trial_(\d+)/)?seed_(\d+)')
DONE, FAILED, STOPPED = 'done', 'failed', 'stopped'


@dataclasses.dataclass
class Record:
  """The contents of `sweep.json`.

  Attributes:
    flags: the flags of launch.py that all runs share, as texts by name.
    trials: for each trial its flags by name, texts or numbers; trial 1 comes first. A single trial
      without flags has no directory of its own.
  """

  flags: dict[str, str]
  trials: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """How a run ended, so far.

  Attributes:
    state: DONE, FAILED or STOPPED.
    reason: why it failed, in one sentence without a full stop; '' if it has not.
    seconds: from each command of the run to its end, added up.
  """

  state: str
  reason: str = ''
  seconds: float = 0.0


def is_sweep(path: str) -> bool:
  """Returns whether a directory is that of a sweep."""
  return os.path.exists(os.path.join(path, _RECORD))


def read(path: str) -> Record | None:
  """Returns the record of a sweep; None if there is none.

  Raises:
    ValueError: it cannot be read; one sentence that names the file.
  """
  file = os.path.join(path, _RECORD)
  try:
    values = reading.json_object(file)
    if values['format'] != FORMAT:
      raise ValueError('it has another format')
    return Record(dict(values['flags']), [dict(trial) for trial in values['trials']])
  except FileNotFoundError:
    return None
  except (OSError, ValueError, LookupError, TypeError) as error:
    raise ValueError(f'{file} cannot be read: {error}.') from error


def write(path: str, record: Record) -> None:
  """Writes the record of a sweep; only its owner may read it if an option looks like a secret."""
  mode = 0o600 if any(map(secrets.holds_any, [record.flags, *record.trials])) else 0o666
  values = {'format': FORMAT, **dataclasses.asdict(record)}
  files.write_json(os.path.join(path, _RECORD), values, mode)


def run_dir(path: str, trial: int, seed: int) -> str:
  """Returns the run directory of a seed of a trial; trial 0 is the only one of a sweep over seeds."""
  return os.path.join(path, *([f'trial_{trial}'] if trial else []), f'seed_{seed}')


def log_path(run_dir: str) -> str:
  """Returns the file with the output of launch.py for a run."""
  return run_dir + '.log'


def outcome_path(run_dir: str) -> str:
  """Returns the file that records how a run ended."""
  return run_dir + '.json'


def outcome(run_dir: str) -> Outcome | None:
  """Returns how a run ended; None if it has not, or if its launcher was killed."""
  try:
    made = Outcome(**reading.json_object(outcome_path(run_dir)))
  except (OSError, ValueError, TypeError):
    return None
  texts = isinstance(made.state, str) and isinstance(made.reason, str)
  return made if texts and reading.is_number(made.seconds) else None


def write_outcome(run_dir: str, made: Outcome) -> None:
  """Records how a run ended."""
  os.makedirs(os.path.dirname(run_dir), exist_ok=True)
  files.write_json(outcome_path(run_dir), dataclasses.asdict(made))


def runs(path: str) -> list[str]:
  """Returns the run directories of a sweep that have begun, by trial and seed."""
  found = []
  for folder in [path, *_folders(path, 'trial_')]:
    for directory in _folders(folder, 'seed_'):
      match = _RUN.fullmatch(os.path.relpath(directory, path))
      if match and run_directory.program_of(directory):
        found.append((int(match[1] or 0), int(match[2]), directory))
  return [directory for _, _, directory in sorted(found)]


def expanded(paths: Sequence[str]) -> list[str]:
  """Returns directories of runs, with those of its runs in place of the directory of a sweep."""
  return [each for path in paths for each in (runs(path) if is_sweep(path) else [path])]


def is_running(path: str) -> bool:
  """Returns whether a command on this machine runs the sweep in a directory."""
  return is_sweep(path) and directory_lock.is_taken(path)


def title(run_dir: str) -> str:
  """Returns the name of a run in tables and pictures: its folder's, or trial_3/seed_1 in a sweep."""
  path = os.path.abspath(run_dir)
  folder, name = os.path.split(path)
  parent, trial = os.path.split(folder)
  if _RUN.fullmatch(f'{trial}/{name}') and is_sweep(parent):
    return f'{trial}/{name}'
  return name


def _folders(path: str, prefix: str) -> list[str]:
  try:
    with os.scandir(path) as entries:
      return [e.path for e in entries if e.name.startswith(prefix) and e.is_dir()]
  except OSError:
    return []
