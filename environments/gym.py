"""Gymnasium's vector environments behind the batched interface."""

from __future__ import annotations

import os
from typing import Any

import dm_env
import numpy as np
from acme import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from environments import gym_fit, gym_flatten, gym_spaces
from environments.base import BatchedEnvironment
from environments.nests import Nest

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
    try:
      observation, _ = self._env.reset(seed=self._seed)
    except gym_fit.ERRORS as error:
      gym_fit.explain(self._env, 'reset', error)
      raise
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
    try:
      observation, reward, terminated, truncated, _ = self._env.step(action)
    except gym_fit.ERRORS as error:
      gym_fit.explain(self._env, 'step', error)
      raise
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
