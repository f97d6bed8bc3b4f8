"""The environments of peers: like ours, as far as Gymnasium's wrappers allow.

Runs in a peer's virtual environment, with its version of Gymnasium.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Stacked(gymnasium.ObservationWrapper):
  """Stacks the last observations, newest last, with zeros before the first of an episode."""

  def __init__(self, env: gymnasium.Env, size: int):
    super().__init__(env)
    shape = (size, *env.observation_space.shape)
    self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    self._frames = np.zeros(shape, np.uint8)

  def reset(self, **arguments: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts an episode."""
    self._frames = np.zeros_like(self._frames)
    return super().reset(**arguments)

  def observation(self, observation: np.ndarray) -> np.ndarray:
    """Returns uint8 `[size, 84, 84]`, a new array."""
    self._frames = np.concatenate([self._frames[1:], observation[None]])
    return self._frames


class Float32(gymnasium.ObservationWrapper):
  """Observations in float32, as networks take them."""

  def __init__(self, env: gymnasium.Env):
    super().__init__(env)
    shape = env.observation_space.shape
    self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)

  def observation(self, observation: np.ndarray) -> np.ndarray:
    """Returns float32 of the same shape."""
    return observation.astype(np.float32)


def make(settings: dict[str, Any]) -> gymnasium.Env:
  """Makes one environment.

  Args:
    settings: the common settings.
  """
  if settings['env'] == 'cartpole':
    return gymnasium.make('CartPole-v1')
  if settings['env'].startswith('gymnasium:HalfCheetah'):
    return Float32(gymnasium.wrappers.ClipAction(gymnasium.make('HalfCheetah-v4')))
  # By class, since not every version of Gymnasium knows the names of games.
  import ale_py
  from ale_py.env import AtariEnv
  from ale_py.roms import get_all_rom_ids

  ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
  game = settings['game']
  title = settings['env'].partition(':')[2].replace('_', '').lower()
  env: gymnasium.Env = AtariEnv(
    next(rom for rom in get_all_rom_ids() if rom.replace('_', '') == title),
    frameskip=1,  # The wrapper repeats actions and needs every screen.
    repeat_action_probability=game['sticky_actions'],
    full_action_space=game['full_action_space'],
    max_num_frames_per_episode=game['frame_cap'],
  )
  env = gymnasium.wrappers.AtariPreprocessing(
    env,
    noop_max=game['noop_max'],
    frame_skip=game['action_repeat'],
    screen_size=84,
    terminal_on_life_loss=game['life_loss_terminates'],
    grayscale_obs=True,
  )
  return Stacked(env, settings['frame_stack'])
