"""The commands of one run: the first one, and those that resumed it."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.results import provenance, records
from benchmarks.running import ROOT
from rundir import curves, files


@dataclasses.dataclass
class Attempt:
  """One command.

  Attributes:
    began: Unix time of the command.
    first_second: the run's last logged second before the command; later rows are this attempt's.
    code: of this repository, see `provenance.code`.
    machine: see `provenance.machine`.
    load_at_start, load_at_end: load averages of a minute.
    seconds: from the command to its end.
    start_up: seconds from the command to second `first_second` of the run's logs; None without logs.
    exit_code: of the command; None if it was stopped.

  If the supervising command was killed, `load_at_end` is None, and `complete` sets `seconds` and
  `start_up` from the logs.
  """

  began: float
  first_second: float
  code: dict[str, Any]
  machine: dict[str, Any]
  load_at_start: float
  load_at_end: float | None = None
  seconds: float | None = None
  start_up: float | None = None
  exit_code: int | None = None


@dataclasses.dataclass
class Attempts:
  """All commands of a run.

  Attributes:
    settings: of the row, see `declared.Row.settings`.
    attempts: oldest first.
  """

  settings: dict[str, Any]
  attempts: list[Attempt]


def read(path: str) -> Attempts | None:
  """Returns the recorded commands; None if there are none, or the file is damaged."""
  try:
    with open(path) as f:
      record = json.load(f)
    settings = records.current_settings(record['settings'])
    return Attempts(settings, [Attempt(**a) for a in record['attempts']])
  except (OSError, ValueError, LookupError, TypeError):
    return None


@contextlib.contextmanager
def attempt(path: str, settings: dict[str, Any], run_dir: str, generated: str) -> Iterator[Attempt]:
  """Records a command that runs within the block, also if the block raises.

  The block sets `exit_code`.

  Args:
    path: the file of the run's attempts.
    settings: of the row.
    run_dir: run directory.
    generated: see `provenance.code`.
  """
  known = complete(path, run_dir)
  earlier = known.attempts if known else []
  made = Attempt(
    began=round(time.time(), 2),
    first_second=curves.last_second(run_dir),
    code=provenance.code(str(ROOT), generated),
    machine=provenance.machine(),
    load_at_start=provenance.load(),
  )
  every = Attempts(settings, [*earlier, made])
  os.makedirs(os.path.dirname(path), exist_ok=True)
  _write(path, every)
  began = time.monotonic()  # The other clock may be set meanwhile.
  try:
    yield made
  finally:
    made.seconds = round(time.monotonic() - began, 2)
    made.load_at_end = provenance.load()
    if (start_up := _start_up(run_dir, made)) is not None:
      made.start_up = min(start_up, made.seconds)
    _write(path, every)


def complete(path: str, run_dir: str) -> Attempts | None:
  """Returns the recorded commands; None if there are none, or the file is damaged.

  Sets the times of the last one, if its supervising command was killed, as far as the logs have them.
  """
  known = read(path)
  if known is None or not known.attempts or known.attempts[-1].seconds is not None:
    return known
  killed = known.attempts[-1]
  if written := _written(run_dir):
    killed.start_up = _start_up(run_dir, killed)
    killed.seconds = round(max(written - killed.began, 0.0), 2)
    _write(path, known)
  return known


def wall_seconds(attempts: list[Attempt], second: float) -> float:
  """Returns the wall time of a second of a run's logs.

  The logs count from the start of the monitor. This counts from the command, and counts every earlier
  command to its end. The time between the commands does not count, nor do commands that made no row.

  Args:
    attempts: of the run, oldest first.
    second: as in the logs.
  """
  made = [a for a in attempts if a.start_up is not None]
  begun = [a for i, a in enumerate(made) if i == 0 or a.first_second < second]
  if not begun:
    return second
  *ended, last = begun
  return sum(a.seconds or 0.0 for a in ended) + (last.start_up or 0.0) + second - last.first_second


def _start_up(run_dir: str, made: Attempt) -> float | None:
  """Returns the seconds from the command to the start of its monitor.

  The last write of a log has the time of its last row, which the row also has in seconds of the run.
  """
  last = curves.last_second(run_dir)
  if last <= made.first_second:
    return None
  return round(max(_written(run_dir) - (last - made.first_second) - made.began, 0.0), 2)


def _written(run_dir: str) -> float:
  """Returns the time of the last row in the logs; 0 without logs."""
  logs = glob.glob(os.path.join(glob.escape(run_dir), 'logs', '*.csv'))
  return max(map(os.path.getmtime, logs), default=0.0)


def _write(path: str, attempts: Attempts) -> None:
  files.write_json(path, dataclasses.asdict(attempts))
