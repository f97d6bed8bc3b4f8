"""bsuite's own results: its log of one environment, episode by episode."""

from __future__ import annotations

import os

import bsuite.bsuite
import dm_env
from bsuite.logging import csv_logging

from environments.base import Exhausted


def csv_path(results_dir: str, task: str) -> str:
  """Returns the path of bsuite's results for an id."""
  name = task.replace(bsuite.bsuite.sweep.SEPARATOR, csv_logging.SAFE_SEPARATOR)
  return os.path.join(results_dir, f'{csv_logging.BSUITE_PREFIX}{name}.csv')


class RecordedEnvironment(dm_env.Environment):
  """The environment that bsuite loads for an id, with bsuite's seed; it writes bsuite's results.

  The constructor writes nothing. The instance that is reset first creates the file. The results cover
  that instance alone, from its first episode to the experiment's last, where `step` raises `Exhausted`.
  """

  def __init__(self, task: str, results_dir: str, episodes: int = 0):
    """Makes the environment.

    Args:
      task: a bsuite id.
      results_dir: directory of the file that `csv_path` names.
      episodes: number of episodes; 0 for bsuite's number.
    """
    experiment, _ = bsuite.bsuite.unpack_bsuite_id(task)
    self._environment = bsuite.bsuite.load(experiment, bsuite.bsuite.sweep.SETTINGS[task])
    self._task = task
    self._results_dir = results_dir
    self._left = episodes or self._environment.bsuite_num_episodes
    self._logged: dm_env.Environment | None = None

  def reset(self) -> dm_env.TimeStep:
    """Starts an episode.

    Raises:
      ValueError: the results file already exists.
    """
    if self._logged is None:
      self._logged = self._record()
    return self._logged.reset()

  def step(self, action: int) -> dm_env.TimeStep:
    """Steps the environment.

    Raises:
      Exhausted: the last episode has ended.
    """
    assert self._logged is not None, 'reset it first'
    if not self._left:
      raise Exhausted(f'the episodes of bsuite:{self._task} are done')
    timestep = self._logged.step(action)
    self._left -= timestep.last()
    return timestep

  def observation_spec(self) -> dm_env.specs.Array:
    """Returns bsuite's observation spec."""
    return self._environment.observation_spec()

  def action_spec(self) -> dm_env.specs.DiscreteArray:
    """Returns bsuite's action spec."""
    return self._environment.action_spec()

  def _record(self) -> dm_env.Environment:
    path = csv_path(self._results_dir, self._task)
    os.makedirs(self._results_dir, exist_ok=True)
    try:
      open(path, 'x').close()
    except FileExistsError:
      raise ValueError(
        f'--env_options=results_dir={self._results_dir}: {path} already exists, and bsuite records '
        'one environment from its first episode on; name a new directory, and use --num_actors=1 '
        '--envs_per_actor=1 --env_groups=1 --eval_envs=0.'
      ) from None
    return csv_logging.wrap_environment(
      self._environment, self._task, self._results_dir, overwrite=True
    )
