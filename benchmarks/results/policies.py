"""Keeps the final parameters of a row in the repository, in the form of a run directory."""

from __future__ import annotations

import dataclasses
import os
import shutil

from benchmarks.results import attempts
from benchmarks.results.declared import Entry, Launch
from benchmarks.results.places import Places
from environments import user_file
from rundir import files, final_params, run_directory, run_end, secrets
from sweeps import commands

MOST_BYTES = 2_000_000
_COUNTERS = ('actor_steps', 'environment_frames', 'learner_steps')


def keep(entry: Entry, row: Launch, places: Places) -> str:
  """Copies what evaluate.py needs to play the policy of the first declared seed.

  Which seed is kept does not depend on its return. The copy has the configuration without paths of this
  machine, the counters, and the final parameters.

  Returns:
    '' or why nothing is kept, in one sentence.
  """
  seed = row.seeds[0]
  run_dir = places.run_dir(entry, seed)
  made = attempts.read(places.attempts(entry, seed))
  if made is None or made.settings != row.settings() or not commands.trained(run_dir):
    return f'seed {seed} has no final parameters in {run_dir}'
  size = os.path.getsize(final_params.path(run_dir))
  if size > MOST_BYTES:
    return f'its parameters are {size:,} bytes, and at most {MOST_BYTES:,} are kept'
  record = run_directory.read_record(run_dir)
  if user_file.is_spec(record.program) or user_file.is_spec(record.config['env']):
    return 'its program or environment is a file of its own'
  if secrets.holds_any(record.config):
    return 'its options have a secret'
  policy = places.policy(entry)
  options = dict.fromkeys(('run_dir', *row.inputs), '')
  kept = dataclasses.replace(
    record,
    given={name: value for name, value in record.given.items() if name not in options},
    config=record.config | options,
    commands=[row.command(entry.name, seed)],
  )
  summary = run_end.read_summary(run_dir) or {}
  shutil.rmtree(policy, ignore_errors=True)
  os.makedirs(os.path.dirname(final_params.path(policy)))
  files.write_json(os.path.join(policy, 'config.json'), dataclasses.asdict(kept))
  counts = {name: summary[name] for name in _COUNTERS}
  files.write_json(run_end.summary_path(policy), counts)
  shutil.copyfile(final_params.path(run_dir), final_params.path(policy))
  return ''
