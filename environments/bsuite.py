"""bsuite's experiments (Osband et al. 2020, Behaviour Suite for Reinforcement Learning)."""

from __future__ import annotations

import inspect

import bsuite.bsuite
import dm_env
import numpy as np

from environments import errors, seeding
from environments.dm import DmEnvBatch


def make(task: str, num_envs: int, seed: int) -> DmEnvBatch:
  """Makes N copies of one bsuite experiment, which differ in their seeds only.

  The experiment's own settings stay as they are, `mapping_seed` included: what an action means is
  part of the task and the same in all N.

  Args:
    task: a bsuite id, `<experiment>/<index of its settings>`.
    num_envs: N.
    seed: of the batch.

  Raises:
    ValueError: there is no such id, or bsuite cannot load the data the experiment needs.
  """
  errors.require_task('bsuite', task, 'catch/0')
  if task not in bsuite.bsuite.sweep.SETTINGS:
    hint = 'ids are <experiment>/<index>; bsuite.sweep.SWEEP lists them'
    raise errors.unknown_task('bsuite', task, bsuite.bsuite.sweep.SETTINGS, hint)
  try:
    return DmEnvBatch([_load(task, env_seed) for env_seed in seeding.spawn(seed, num_envs)])
  except OSError as error:
    raise ValueError(
      f'--env bsuite:{task}: bsuite could not fetch its data set ({error}); use another experiment'
    ) from error


def _load(task: str, seed: int) -> dm_env.Environment:
  """Returns the experiment with `seed` in place of its own.

  Most constructors take a seed. deep_sea_stochastic's does not, though its environment draws from
  `_rng`, which is replaced here. The rest of those without a seed are deterministic.
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
