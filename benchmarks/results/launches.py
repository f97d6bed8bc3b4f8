"""Runs one seed of a row of ours: launch.py, new or with --resume, then evaluate.py."""

from __future__ import annotations

import os
from collections.abc import Callable

from benchmarks.results import attempts, provenance, recording, records
from benchmarks.results.declared import Entry, Launch
from benchmarks.results.failed import Failed
from benchmarks.results.places import Places
from benchmarks.running import ROOT
from sweeps import commands


def run(entry: Entry, row: Launch, seed: int, places: Places) -> None:
  """Brings a seed to its record: resumes or starts the launch, and evaluates the final parameters.

  Raises:
    Failed: launch.py or evaluate.py failed.
  """
  run_dir = places.run_dir(entry, seed)
  log = places.log(entry, seed)
  keep_only_this_row(entry, seed, places)
  if not commands.trained(run_dir):
    flags = row.arguments(seed, places.task_dir(entry))
    command = ['launch.py', *commands.target(run_dir, flags)]
    with (
      attempts.attempt(
        places.attempts(entry, seed), row.settings(), run_dir, places.docs
      ) as attempt,
      commands.started(command, log) as process,
    ):
      attempt.exit_code = process.wait()
    if attempt.exit_code:
      raise Failed(
        f'launch.py ended with exit code {attempt.exit_code}: {process.last_words()} ({log})'
      )
  score = run_dir + '.score.json'
  flags = [f'--episodes={entry.task.episodes}', f'--seed={seed}', f'--json={score}']
  with commands.started(['evaluate.py', run_dir, *flags], log) as process:
    if code := process.wait():
      raise Failed(f'evaluate.py ended with exit code {code}: {process.last_words()} ({log})')
  done = attempts.complete(places.attempts(entry, seed), run_dir)
  assert done is not None
  evaluator = provenance.code(str(ROOT), places.docs)
  record = recording.of_launch(entry, row, seed, run_dir, score, done.attempts, evaluator)
  records.add(places.records(entry), record)


def _continues(run_dir: str) -> bool:
  return commands.trained(run_dir) or commands.resumable(run_dir) or commands.unused(run_dir)


def keep_only_this_row(
  entry: Entry, seed: int, places: Places, continues: Callable[[str], bool] = _continues
) -> None:
  """Sets the directory aside of a run that cannot become this row's.

  It has other settings, since the row was changed, or no checkpoint to resume from. What is left of a
  directory that is gone is set aside too: the times of its commands are not those of the next run.

  Args:
    entry: the row with its task.
    seed: of the run.
    places: where the files go.
    continues: returns whether the next command can continue a run directory.
  """
  run_dir = places.run_dir(entry, seed)
  before = attempts.read(places.attempts(entry, seed))
  if not os.path.exists(run_dir):
    if before is not None:
      commands.set_aside(run_dir, places.attempts(entry, seed), places.log(entry, seed))
    return
  same = before is not None and before.settings == entry.row.settings()
  if same and continues(run_dir):
    return
  aside = commands.set_aside(run_dir, places.attempts(entry, seed), places.log(entry, seed))
  why = 'it was never checkpointed' if same else 'the row has other settings now'
  print(f'{entry.name} {seed}: what was there is in {aside}: {why}', flush=True)
