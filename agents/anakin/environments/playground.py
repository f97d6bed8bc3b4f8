"""The Control Suite in MuJoCo Playground (Zakka et al. 2025)."""

from __future__ import annotations

from typing import Any

from mujoco_playground import dm_control_suite

from agents.anakin.environments import errors
from agents.anakin.environments.physics import Physics
from agents.anakin.environments.suite import arguments

# Of its wrappers for training, and of images, which need a GPU.
_NOT_HERE = {'action_repeat', 'episode_length', 'vision'}


def make(task: str, *, max_episode_steps: int = 0, **options: Any) -> Physics:
  """Makes one environment.

  Args:
    task: such as CartpoleSwingup, CheetahRun or WalkerWalk.
    max_episode_steps: steps after which an episode is truncated; 0 for Playground's own limit, 1,000.
    options: entries of Playground's config, such as `ctrl_dt`. `impl` is jax, which runs everywhere, and
      not Playground's default warp, which needs a GPU of NVIDIA.

  Raises:
    ValueError: there is no such environment, or it cannot be made; or an option is unknown.
  """
  known = dm_control_suite.ALL_ENVS
  if task not in known:
    raise errors.unknown_task('playground', task, known)
  name = f'playground:{task}'
  config = dm_control_suite.get_default_config(task)
  with config.unlocked():
    config.impl = 'jax'
  plain = {
    key: value
    for key, value in config.items()
    if type(value) in (bool, int, float, str) and key not in _NOT_HERE
  }
  config.update(arguments(name, options, plain))
  with errors.one_sentence(name):
    environment = dm_control_suite.load(task, config=config)
  return Physics(name, environment, max_episode_steps or config.episode_length)
