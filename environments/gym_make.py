"""Batches of the environments that Gymnasium registers."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import VectorizeMode
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from environments import (
  errors,
  gym_constructor,
  gym_spaces,
  hidden_modules,
  nests,
  seeding,
  user_file,
)
from environments import options as env_options
from environments.gym import GymnasiumBatch
from environments.gym_masks import InfoMask

_IDS = 'a registered id, or module:id where importing the module registers it'


def make(
  task: str,
  num_envs: int,
  seed: int,
  /,
  *,
  max_episode_steps: int = 0,
  flatten: str = 'auto',
  action_mask: bool = False,
  **constructor: str,
) -> GymnasiumBatch:
  """Makes N copies of a registered Gymnasium environment: MuJoCo and Box2D tasks, classic control, ...

  CartPole is vectorised in NumPy. The copies of any other are stepped in sequence. Other options are
  those of the environment's own constructor.

  Observations other than Box (Dict, Tuple, Discrete, ...) are flattened by the rule of
  `gymnasium.spaces.flatten`: a Discrete is one-hot, a Dict is concatenated in its keys' order. The
  entry `action_mask` of a Dict stays beside the vector. A Dict or a Tuple with an image stays a nest.

  Args:
    task: an id, such as LunarLander-v3; 'module:id' first imports the module that registers it.
    num_envs: N.
    seed: the seed of the batch.
    max_episode_steps: steps after which an episode is truncated; 0 for the environment's own limit.
    flatten: true: a Dict or a Tuple becomes one vector; false: it stays a nest; auto: it stays one if it
      has an image.
    action_mask: whether observations have the action mask of `info`; see `InfoMask`.
    **constructor: keyword arguments of the constructor as text; see `gym_constructor`.

  Raises:
    ValueError: Gymnasium does not know the id or lacks its dependencies, the limit is negative, the
      constructor has no such option, a space has no array form, or there is no action mask in `info`.
  """
  errors.require_task('gymnasium', task, 'LunarLander-v3')
  *modules, _ = task.split(':')
  if modules and (len(modules) > 1 or not all(map(str.isidentifier, modules[0].split('.')))):
    raise errors.unknown_task('gymnasium', task, gymnasium.registry, _IDS)
  errors.require_option(
    max_episode_steps >= 0, 'max_episode_steps', max_episode_steps, 'be at least 0'
  )
  flattens = nests.flattens(flatten)
  keywords = _keywords(task, constructor)
  if max_episode_steps:
    keywords['max_episode_steps'] = max_episode_steps

  def make_one() -> gymnasium.Env:
    env = gymnasium.make(task, disable_env_checker=True, **keywords)
    space = env.observation_space
    if isinstance(space, spaces.Box) or gym_spaces.is_nest(space):
      return env
    return gymnasium.wrappers.FlattenObservation(env)

  seeds: Any = seed
  vector_env: VectorEnv
  try:
    if _is_vectorised(task):
      mode = VectorizeMode.VECTOR_ENTRY_POINT
      vector_env = gymnasium.make_vec(task, num_envs, mode, **keywords)
    else:
      seeds = seeding.spawn(seed, num_envs)
      with _quietly(task):
        vector_env = SyncVectorEnv([make_one] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    if action_mask:
      # The mask makes a Dict of an array, which stays as it is.
      if not gym_spaces.is_nest(vector_env.single_observation_space):
        flattens = False
      vector_env = InfoMask(vector_env)
    return GymnasiumBatch(vector_env, seeds, flatten=flattens)
  except Exception as error:  # The environment may be the user's.
    raise _refusal(task, error) from error


def make_cartpole(
  task: str, num_envs: int, seed: int, *, max_episode_steps: int = 500
) -> GymnasiumBatch:
  """Makes N copies of CartPole-v1, vectorised in NumPy.

  Args:
    task: empty.
    num_envs: N.
    seed: the seed of the batch.
    max_episode_steps: steps after which an episode is truncated; CartPole-v1 has 500.

  Raises:
    ValueError: the task is not empty, or the limit is not positive.
  """
  errors.reject_task('cartpole', task)
  errors.require_option(
    max_episode_steps >= 1, 'max_episode_steps', max_episode_steps, 'be at least 1'
  )
  return make('CartPole-v1', num_envs, seed, max_episode_steps=max_episode_steps)


def _keywords(task: str, texts: Mapping[str, str]) -> dict[str, Any]:
  """Returns texts as keyword arguments of the environment's constructor."""
  if not texts:
    return {}
  try:
    found = gym_constructor.registered(task)
  except Exception as error:  # Of a module of the user's.
    raise _refusal(task, error) from error
  ours = env_options.of_factory('gymnasium', make, '')
  return gym_constructor.arguments(task, found, _is_vectorised(task), texts, ours)


def _is_vectorised(task: str) -> bool:
  """Returns whether Gymnasium has the environment vectorised in NumPy; those of phys2d need JAX."""
  spec = gymnasium.registry.get(task)
  entry_point = spec.vector_entry_point if spec is not None else None
  return isinstance(entry_point, str) and '.classic_control.' in entry_point


@contextlib.contextmanager
def _quietly(task: str) -> Iterator[None]:
  """Suppresses MuJoCo's warnings about Gymnasium's models; it also writes them into a file here."""
  spec = gymnasium.registry.get(task)
  mujoco: Any = None
  if spec is not None and '.mujoco.' in str(spec.entry_point):
    with contextlib.suppress(ImportError):  # Gymnasium reports it.
      mujoco = importlib.import_module('mujoco')
  if mujoco is None:
    yield
    return
  previous = mujoco.get_mju_user_warning()
  mujoco.set_mju_user_warning(lambda message: None)
  try:
    yield
  finally:
    mujoco.set_mju_user_warning(previous)


def _refusal(task: str, error: Exception) -> ValueError:
  """Returns the error for an environment that Gymnasium could not make."""
  module = task.partition(':')[0] if ':' in task else ''
  missing = {getattr(e, 'name', None) for e in (error, error.__cause__, error.__context__)} - {None}
  no_module = isinstance(error, ModuleNotFoundError) and module.split('.')[0] in missing
  if no_module or isinstance(error, gymnasium.error.UnregisteredEnv):
    return errors.unknown_task('gymnasium', task, gymnasium.registry, _IDS)
  said = ' '.join(str(error).split())
  if isinstance(error, gymnasium.error.DependencyNotInstalled):
    # Its own advice could replace the versions that are locked.
    said = re.sub(r'pip install (["\']?)([^`"\']+)\1', r"make add PACKAGES='\2'", said)
  elif not isinstance(error, gymnasium.error.Error | ValueError):
    said = f'{type(error).__name__}: {said}{hidden_modules.explain(error.__cause__ or error)}'
  file = getattr(sys.modules.get(module), '__file__', '') or ''
  return ValueError(
    f'--env=gymnasium:{task} cannot be made here: {said}{user_file.where(error, file)}'
  )
