"""The DeepMind Control Suite (Tassa et al. 2018), in MuJoCo, with state observations."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import logging

from environments import errors, nests, seeding
from environments import options as env_options
from environments.dm import DmEnvBatch

_RENDERED = {'quadruped/escape'}  # Tasks that upload a terrain to a renderer.
_UNBOUNDED = 1e10  # MuJoCo's mjMAXVAL.


def make(
  task: str,
  num_envs: int,
  seed: int,
  /,
  *,
  action_repeat: int = 1,
  time_limit: float = 0.0,
  flatten: str = 'auto',
  **task_options: str,
) -> DmEnvBatch:
  """Makes N copies of a task, stepped in sequence.

  The observation is the suite's; actions are floats within the task's bounds. The time limit truncates
  episodes. Nothing is rendered and no display is needed, unless the environment
  variable MUJOCO_GL names a renderer.

  Args:
    task: `<domain>/<task>`.
    num_envs: N.
    seed: the seed of the batch.
    action_repeat: control steps for which an action is held; their rewards are summed.
    time_limit: simulated seconds after which an episode is truncated; 0 for the task's own limit.
    flatten: true and auto: the observation is one vector; false: it is the suite's dictionary.
    **task_options: further arguments of the task's function as text, such as `num_poles`.

  Raises:
    ValueError: the task is unknown, its actions have no bounds, or an option is unknown or out of range.
  """
  errors.require_task('dm_control', task, 'cartpole/swingup')
  errors.require_option(action_repeat >= 1, 'action_repeat', action_repeat, 'be at least 1')
  errors.require_option(time_limit >= 0, 'time_limit', time_limit, 'be at least 0')
  suite = load_suite()
  known = ['/'.join(names) for names in suite.ALL_TASKS]
  if task not in known:
    raise errors.unknown_task('dm_control', task, known, 'tasks are <domain>/<task>')
  if task in _RENDERED and os.environ['MUJOCO_GL'] == 'disabled':
    raise ValueError(
      f'--env=dm_control:{task}: its terrain needs a renderer; set the environment variable '
      'MUJOCO_GL=egl or MUJOCO_GL=osmesa, or use another task.'
    )
  domain, _, name = task.partition('/')
  own = env_options.of_constructor(
    f'dm_control:{task}',
    getattr(suite, domain).SUITE[name],
    task_options,
    registered={},
    ours=env_options.of_factory('dm_control', make, ''),
    hidden=('random', 'time_limit', 'environment_kwargs'),
  )
  limit = {'time_limit': time_limit} if time_limit else {}
  with _quietly():
    environments = [
      suite.load(domain, name, task_kwargs={'random': env_seed, **limit, **own})
      for env_seed in seeding.spawn(seed, num_envs)
    ]
  bounds = environments[0].action_spec()
  if np.abs([bounds.minimum, bounds.maximum]).max() >= _UNBOUNDED:
    raise ValueError(f'--env=dm_control:{task}: its actions have no bounds; use another task.')
  protocol = f'action_repeat={action_repeat} time_limit={time_limit or "own"} rewards=raw'
  return DmEnvBatch(environments, protocol, action_repeat, nests.flattens(flatten))


def load_suite() -> Any:
  """Returns the module `dm_control.suite`.

  On first import, MuJoCo and dm_control look for a renderer and warn without a display, unless MUJOCO_GL
  is set. It is set to `disabled` here by default.
  """
  os.environ.setdefault('MUJOCO_GL', 'disabled')
  with _quietly():
    from dm_control import suite
  return suite


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
  """Suppresses MuJoCo's warnings about the suite's own models."""
  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)
  try:
    yield
  finally:
    logging.set_verbosity(verbosity)
