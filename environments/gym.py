"""Gymnasium's vector environments behind the batched interface."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import dm_env
import gymnasium
import numpy as np
from acme import specs
from gymnasium import spaces
from gymnasium.envs.registration import VectorizeMode
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from environments import errors, gym_constructor, gym_flatten, gym_spaces, nests, seeding
from environments import options as env_options
from environments.base import BatchedEnvironment
from environments.gym_masks import InfoMask
from environments.nests import Nest

_IDS = 'a registered id, or module:id where importing the module registers it'
_FIRST, _MID, _LAST = (np.uint8(int(step_type)) for step_type in dm_env.StepType)


class GymnasiumBatch(BatchedEnvironment):
  """A vector environment with next-step autoreset: done is LAST, and the next step is FIRST.

  `terminated` is LAST with discount 0, `truncated` alone is LAST with discount 1. Float
  observations become float32; other dtypes are kept. A Dict or a Tuple becomes one vector, see
  `environments.gym_flatten`, or with an image stays a nest, see `environments.gym_spaces`. Discrete
  actions start at 0.
  """

  def __init__(
    self,
    vector_env: VectorEnv,
    seed: Any,
    action_repeat: int = 1,
    protocol: str = '',
    observation_shape: tuple[int, ...] | None = None,
    flatten: bool | None = None,
  ):
    """Initialises the batch, which owns and closes the vector environment.

    Args:
      vector_env: Box, Dict or Tuple observations; Discrete, MultiDiscrete or bounded float Box actions;
        returns new arrays each step.
      seed: passed to the first `reset` of the vector environment.
      action_repeat: see the base class.
      protocol: see the base class.
      observation_shape: shape to reshape observations to; None for the space's own.
      flatten: whether a Dict or a Tuple becomes one vector; None: unless it has an image, see
        `environments.nests.is_image`.

    Raises:
      ValueError: the autoreset mode or a space is not supported.
    """
    mode = vector_env.metadata.get('autoreset_mode')
    if mode != AutoresetMode.NEXT_STEP:
      raise ValueError(
        f'the vector environment must autoreset at the next step, not in mode {mode}'
      )
    space = vector_env.single_observation_space
    if flatten is None:
      flatten = not gym_spaces.has_image(space)
    if flatten and gym_spaces.is_nest(space):
      vector_env = gym_flatten.Flattened(vector_env)
      space = vector_env.single_observation_space
    if not isinstance(space, spaces.Box) and not gym_spaces.is_nest(space):
      raise ValueError(f'the observation space is {space}, which has no array form')
    self.num_envs = vector_env.num_envs
    self.action_repeat = action_repeat
    self.protocol = protocol
    self._env = vector_env
    self._seed = seed
    self._observation_spec = gym_spaces.observation_spec(space)
    if observation_shape is not None:
      self._observation_spec = self._observation_spec.replace(shape=observation_shape)
    nested = gym_spaces.is_nest(space)
    self._observation = gym_spaces.nest_of(space) if nested else self._array
    self._action_space = vector_env.single_action_space
    self._action_spec = gym_spaces.action_spec(self._action_space)
    self._start = getattr(self._action_space, 'start', 0)
    self._starts_elsewhere = np.any(self._start)
    self._ended = np.zeros(self.num_envs, bool)

  def reset(self) -> dm_env.TimeStep:
    """Starts N episodes; the first call seeds them. See the base class."""
    observation, _ = self._env.reset(seed=self._seed)
    self.game_over = getattr(self._env, 'game_over', None)
    self._seed = None
    self._ended = np.zeros(self.num_envs, bool)
    return dm_env.TimeStep(
      step_type=np.full(self.num_envs, _FIRST),
      reward=np.zeros(self.num_envs, np.float32),
      discount=np.ones(self.num_envs, np.float32),
      observation=self._observation(observation),
    )

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Steps all environments. See the base class."""
    if not isinstance(self._action_space, spaces.Discrete):
      action = action.astype(self._action_space.dtype, copy=False)
    if self._starts_elsewhere:
      action = action + self._start
    observation, reward, terminated, truncated, _ = self._env.step(action)
    self.game_over = getattr(self._env, 'game_over', None)
    first, self._ended = self._ended, terminated | truncated
    step_type = np.where(self._ended, _LAST, _MID)
    step_type[first] = _FIRST
    reward = reward.astype(np.float32)
    reward[first] = 0.0
    return dm_env.TimeStep(
      step_type=step_type,
      reward=reward,
      discount=np.float32(1) - terminated,
      observation=self._observation(observation),
    )

  def observation_spec(self) -> Nest:
    """Returns the spec of one observation, or a nest of specs."""
    return self._observation_spec

  def action_spec(self) -> specs.Array:
    """Returns the int32 or float32 spec of one action."""
    return self._action_spec

  def render(self) -> np.ndarray | None:
    """Returns Gymnasium's rendering of the first environment, without a display. See the base class.

    MuJoCo renders with EGL unless the environment variable MUJOCO_GL names another library.
    """
    os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')
    os.environ.setdefault('PYGAME_HIDE_SUPPORT_PROMPT', '1')
    os.environ.setdefault('MUJOCO_GL', 'egl')
    renderer: Any = self._env.unwrapped
    if isinstance(renderer, SyncVectorEnv):
      renderer = renderer.envs[0].unwrapped
    if 'rgb_array' not in renderer.metadata.get('render_modes', ()):
      return None
    renderer.render_mode = 'rgb_array'  # The renderer is created at the first call.
    try:
      drawn = renderer.render()
    except Exception:  # MuJoCo's raises many kinds on a machine without a graphics library.
      return None
    picture = drawn[0] if isinstance(drawn, list | tuple) else drawn
    return None if picture is None else np.asarray(picture, np.uint8)

  def close(self) -> None:
    """Closes the vector environment; a second call does nothing."""
    if hasattr(self, '_env'):
      self._env.close()
      del self._env  # ale-py stops its threads when the last reference is dropped, not in close().

  def _array(self, observation: np.ndarray) -> np.ndarray:
    """Returns the batch in the shape and dtype of the spec, in C order."""
    array = np.ascontiguousarray(observation, self._observation_spec.dtype)
    return array.reshape(self.num_envs, *self._observation_spec.shape)


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
    said += '; requirements.txt has the packages of MuJoCo, Box2D and classic control'
  elif not isinstance(error, gymnasium.error.Error | ValueError):
    said = f'{type(error).__name__}: {said}'
  return ValueError(f'--env=gymnasium:{task} cannot be made here: {said}')
