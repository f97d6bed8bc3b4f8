"""bsuite's experiments (Osband et al. 2020, Behaviour Suite for Reinforcement Learning)."""

from __future__ import annotations

import inspect

import bsuite.bsuite
import dm_env
import numpy as np

from environments import errors, seeding
from environments.bsuite_record import RecordedEnvironment
from environments.dm import DmEnvBatch


def make(
  task: str, num_envs: int, seed: int, *, results_dir: str = '', episodes: int = 0
) -> DmEnvBatch:
  """Makes N copies of one bsuite experiment that differ only in their seeds.

  The experiment's other settings stay, `mapping_seed` included: the meaning of an action is part of the
  task and the same in all N.

  Args:
    task: a bsuite id, `<experiment>/<index of its settings>`.
    num_envs: N.
    seed: the seed of the batch; not used where results are recorded.
    results_dir: directory for bsuite's own results, of one environment; '' for none.
    episodes: episodes after which a recorded environment ends; 0 for bsuite's number.

  Raises:
    ValueError: the id is unknown, bsuite cannot load the experiment's data, or the options are
      inconsistent.
  """
  errors.require_task('bsuite', task, 'catch/0')
  if task not in bsuite.bsuite.sweep.SETTINGS:
    hint = 'ids are <experiment>/<index>; bsuite.sweep.SWEEP lists them'
    raise errors.unknown_task('bsuite', task, bsuite.bsuite.sweep.SETTINGS, hint)
  if results_dir and num_envs > 1:
    raise ValueError(
      f'--env_options=results_dir={results_dir}: bsuite records one environment; use --num_actors=1 '
      '--envs_per_actor=1 --env_groups=1 --eval_envs=0.'
    )
  if episodes < 0 or (episodes and not results_dir):
    raise ValueError(
      f'--env_options=episodes={episodes} needs results_dir and must not be negative; set results_dir, '
      'or leave episodes out.'
    )
  try:
    if results_dir:
      return DmEnvBatch([RecordedEnvironment(task, results_dir, episodes)])
    return DmEnvBatch([_load(task, env_seed) for env_seed in seeding.spawn(seed, num_envs)])
  except OSError as error:
    raise ValueError(
      f'--env=bsuite:{task}: bsuite could not fetch its data set ({error}); use another experiment.'
    ) from error


def _load(task: str, seed: int) -> dm_env.Environment:
  """Returns the experiment with `seed` in place of its own.

  Most constructors take a seed. deep_sea_stochastic's does not, but its environment draws from `_rng`,
  which is replaced here. The other experiments without a seed are deterministic.
  """
  experiment, _ = bsuite.bsuite.unpack_bsuite_id(task)
  constructor = bsuite.bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[experiment]
  settings = dict(bsuite.bsuite.sweep.SETTINGS[task])
  if 'seed' in inspect.signature(constructor).parameters:
    return constructor(**{**settings, 'seed': seed})
  environment = constructor(**settings)
  if hasattr(environment, '_rng'):
    environment._rng = np.random.RandomState(seed)
  return environment
