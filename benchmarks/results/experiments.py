"""Runs one seed of a row of bsuite: `benchmarks.bsuite` on all ids of an experiment."""

from __future__ import annotations

import dataclasses
import os
import shlex
from typing import Any

from benchmarks import bsuite
from benchmarks.output import cores
from benchmarks.results import attempts, launches, recording, records
from benchmarks.results.attempts import Attempt
from benchmarks.results.declared import Entry, Experiment
from benchmarks.results.failed import Failed
from benchmarks.results.places import Places
from benchmarks.results.records import Curve, Record
from rundir import run_directory
from sweeps import commands

# A launch has one environment, so its processes mostly wait for each other.
_JOBS_PER_CORE = 2
# Options that differ between the ids.
_OF_AN_ID = ('env', 'env_options')


def run(entry: Entry, row: Experiment, seed: int, places: Places) -> None:
  """Brings a seed to its record; ids that are done are not run again.

  Raises:
    Failed: the launch of an id failed.
  """
  run_dir, log = places.run_dir(entry, seed), places.log(entry, seed)
  launches.keep_only_this_row(entry, seed, places, continues=os.path.exists)
  with (
    attempts.attempt(places.attempts(entry, seed), row.settings(), run_dir, places.docs) as attempt,
    commands.started(
      row.arguments(seed, run_dir, f'--jobs={_JOBS_PER_CORE * cores()}'), log
    ) as process,
  ):
    attempt.exit_code = process.wait()
  if attempt.exit_code:
    raise Failed(
      f'benchmarks.bsuite ended with exit code {attempt.exit_code}: {process.last_words()} ({log})'
    )
  done = attempts.complete(places.attempts(entry, seed), run_dir)
  assert done is not None
  records.add(places.records(entry), record(entry, row, seed, run_dir, done.attempts))


def record(entry: Entry, row: Experiment, seed: int, run_dir: str, made: list[Attempt]) -> Record:
  """Returns the record of a finished sweep.

  Its curve is the mean over the ids of the training return; the steps are those of all ids.

  Args:
    entry: the row with its task.
    row: the row.
    seed: of the run.
    run_dir: directory of the results.
    made: the commands of the run.
  """
  ids = row.ids()
  (score,) = bsuite.scores(run_dir)
  launched = run_directory.read_record(bsuite.run_dirs(run_dir, ids[0])[-1])
  curve, by_id = _returns(run_dir, ids)
  options = recording.settings_of(launched.config)
  which = f'the {score.ids}' if len(ids) == score.ids else f'{len(ids)} of the {score.ids}'
  protocol = (
    f"bsuite's score of {which} ids of `{score.experiment}`, from {row.budget:,} training episodes "
    'each, exploration included'
  )
  return Record(
    row=entry.name,
    seed=seed,
    settings=row.settings(),
    command=shlex.join(row.command(entry.name, seed)),
    curve=curve,
    returns='training, the mean over the ids',
    final={
      'mean': score.score,
      'standard_error': None,
      'episodes': row.budget * len(ids),
      'protocol': protocol,
      'mean_return_by_id': by_id,
    },
    totals={
      'actor_steps': curve.actor_steps[-1],
      'environment_frames': curve.environment_frames[-1],
      'seconds': round(sum(a.seconds or 0.0 for a in made), 1),
      'steps_per_second': None,
    },
    attempts=[dataclasses.asdict(attempt) for attempt in made],
    versions=launched.versions,
    options={name: value for name, value in options.items() if name not in _OF_AN_ID},
  )


def _returns(run_dir: str, ids: list[str]) -> tuple[Curve, dict[str, float]]:
  """Returns the curve over all ids, and the mean return of all episodes of each."""
  from bsuite.logging import csv_load

  table, _ = csv_load.load_bsuite(run_dir)
  columns = ['bsuite_id', 'episode', 'steps', 'total_return']
  rows = table[columns].sort_values(['bsuite_id', 'episode'])
  by_id = {i: rows[rows.bsuite_id == i].set_index('episode') for i in ids}
  sums: Any = sum(one[['steps', 'total_return']] for one in by_id.values())
  between = sums.total_return.diff().fillna(sums.total_return)
  episodes = sums.index.to_series().diff().fillna(sums.index[0]) * len(ids)
  steps = [int(value) for value in sums.steps]
  curve = Curve(
    actor_steps=steps,
    environment_frames=steps,
    seconds=[],
    mean_return=[recording.digits(value) for value in between / episodes],
    episodes=[int(value) for value in episodes],
  )
  last = {i: one.iloc[-1].total_return / one.index[-1] for i, one in by_id.items()}
  return curve, {i: recording.digits(value) for i, value in last.items()}
