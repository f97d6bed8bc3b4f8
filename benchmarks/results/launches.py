"""Runs one seed of a row of ours: launch.py, new or with --resume, then evaluate.py."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from benchmarks.results import attempts, recording, records
from benchmarks.results.declared import Entry, Launch
from benchmarks.results.failed import Failed
from benchmarks.results.places import Places
from benchmarks.running import ROOT, last_line
from rundir import checkpoints, final_params, run_directory

_LOCK = '.lock'  # All that a refused command leaves.


def run(entry: Entry, row: Launch, seed: int, places: Places) -> None:
  """Brings a seed to its record: resumes or starts the launch, and evaluates the final parameters.

  Raises:
    Failed: launch.py or evaluate.py failed.
  """
  run_dir = places.run_dir(entry, seed)
  log = places.log(entry, seed)
  keep_only_this_row(entry, seed, places)
  if not trained(run_dir):
    command = ['launch.py', *_target(row, seed, run_dir)]
    with (
      attempts.attempt(
        places.attempts(entry, seed), row.settings(), run_dir, places.docs
      ) as attempt,
      _started(command, log) as process,
    ):
      attempt.exit_code = process.wait()
    if attempt.exit_code:
      raise Failed(f'launch.py ended with exit code {attempt.exit_code}: {last_line(log)} ({log})')
  score = run_dir + '.score.json'
  flags = [f'--episodes={entry.task.episodes}', f'--seed={seed}', f'--json={score}']
  with _started(['evaluate.py', run_dir, *flags], log) as process:
    if code := process.wait():
      raise Failed(f'evaluate.py ended with exit code {code}: {last_line(log)} ({log})')
  done = attempts.read(places.attempts(entry, seed))
  assert done is not None
  records.write(
    places.record(entry, seed), recording.of_launch(entry, row, seed, run_dir, score, done.attempts)
  )


def trained(run_dir: str) -> bool:
  """Returns whether a run has ended with final parameters."""
  ended = run_directory.read_summary(run_dir) is not None
  return ended and os.path.exists(final_params.path(run_dir))


def keep_only_this_row(entry: Entry, seed: int, places: Places) -> None:
  """Sets the directory aside of a run that cannot become this row's.

  It has other settings, since the row was changed, or no checkpoint to resume from.
  """
  run_dir = places.run_dir(entry, seed)
  if not os.path.exists(run_dir):
    return
  before = attempts.read(places.attempts(entry, seed))
  same = before is not None and before.settings == entry.row.settings()
  if same and (trained(run_dir) or _resumable(run_dir) or not set(os.listdir(run_dir)) - {_LOCK}):
    return
  number = 1
  while os.path.exists(f'{run_dir}.set-aside-{number}'):
    number += 1
  aside = f'{run_dir}.set-aside-{number}'
  os.makedirs(aside)
  for path in (run_dir, places.attempts(entry, seed), places.log(entry, seed)):
    with contextlib.suppress(FileNotFoundError):
      os.rename(path, os.path.join(aside, os.path.basename(path)))
  why = 'it was never checkpointed' if same else 'the row has other settings now'
  print(f'{entry.name} {seed}: what was there is in {aside}: {why}', flush=True)


def _resumable(run_dir: str) -> bool:
  is_run = bool(run_directory.program_of(run_dir))
  return is_run and bool(checkpoints.steps(checkpoints.directory(run_dir)))


def _target(row: Launch, seed: int, run_dir: str) -> list[str]:
  """Returns the flags that resume the run, or start it if there is none."""
  if run_directory.program_of(run_dir):
    return [f'--resume={run_dir}']
  return [*row.arguments(seed), f'--run_dir={run_dir}']


@contextlib.contextmanager
def _started(command: Sequence[str], log: str) -> Iterator[subprocess.Popen]:
  """Starts a Python command that appends to a log; if the block is left early, ends it and waits.

  SIGTERM leaves a checkpoint. Leaving the block a second time kills the command.
  """
  os.makedirs(os.path.dirname(log), exist_ok=True)
  with open(log, 'ab') as output:
    process = subprocess.Popen(
      [sys.executable, *command],
      cwd=ROOT,
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=subprocess.STDOUT,
      start_new_session=True,  # Ctrl-C reaches only the supervising command, which then ends this one.
    )
  try:
    yield process
  finally:
    if process.poll() is None:
      process.terminate()
      try:
        process.wait()
      except BaseException:
        process.kill()
        raise
