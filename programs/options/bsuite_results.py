"""bsuite's own results of a run, which are of one environment: see `environments.bsuite_record`."""

from __future__ import annotations

import os
from typing import Any

from agents import options as options_of
from environments import options

_ONE = {'num_actors': 1, 'envs_per_actor': 1, 'env_groups': 1, 'num_replicas': 1, 'eval_envs': 0}


def check_counts(config: Any) -> None:
  """Raises ValueError, one sentence, if a run records results and has more than one environment."""
  wrong = [name for name, value in _ONE.items() if options_of.value(config, name, value) != value]
  if wrong and (directory := _directory(config)):
    flags = ' '.join(f'--{name}={_ONE[name]}' for name in wrong)
    raise ValueError(
      f'--env_options=results_dir={directory}: bsuite records one environment; use {flags}.'
    )


def unrecorded(env: str, env_options: str) -> str:
  """Returns the options of a run's environment without those that record."""
  if not env.startswith('bsuite:'):
    return env_options
  return options.merge(env_options, 'results_dir=,episodes=0')


def check_directory(config: Any) -> None:
  """Raises ValueError, one sentence, if a run could not write its results on this machine."""
  if not (directory := _directory(config)):
    return
  from environments.bsuite_record import csv_path

  said = f'--env_options=results_dir={directory}'
  if os.path.exists(path := csv_path(directory, config.run.env.partition(':')[2])):
    if config.run.resumes:
      raise ValueError(
        f'--resume={config.run.run_dir}: {path} has the first episodes of this run, and bsuite records '
        'one environment from its first episode on; start a new run with another results_dir.'
      )
    raise ValueError(f'{said}: {path} already exists; name a new directory.')
  there = os.path.abspath(directory)
  while not os.path.exists(there):
    there = os.path.dirname(there)
  if not (os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)):
    raise ValueError(f'{said} cannot be written; name another directory.')


def _directory(config: Any) -> str:
  """Returns the directory of the results; '' for none."""
  if not config.run.env.startswith('bsuite:'):
    return ''
  return options.texts(config.run.env_options).get('results_dir', '')
