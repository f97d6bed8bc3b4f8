"""Atari 2600 games, on the compiled vector environment of ale-py.

The defaults are the protocol of Machado et al. 2018 (Revisiting the Arcade Learning Environment,
section 5): sticky actions with probability 0.25, all 18 actions, no episode end at the loss of a life,
truncation at 108,000 emulator frames (half an hour). Rewards are the game's own.

ale-py 0.12 does not copy the screen of the frame in which an episode ends. The observation of a LAST
row is therefore pooled from screens up to six frames older. After a termination the discount 0 cancels
its value. After a truncation it shows a state at most a tenth of a second earlier.
"""

from __future__ import annotations

import ale_py
import numpy as np
from ale_py import roms
from gymnasium.vector import VectorEnv

from environments import errors, seeding
from environments.gym import GymnasiumBatch
from environments.lives import LivesAsEpisodes

_MOST_NOOPS = 10_000


def make(
  task: str,
  num_envs: int,
  seed: int,
  *,
  sticky_actions: float = 0.25,
  full_action_space: bool = True,
  noop_max: int = 0,
  life_loss_terminates: bool = False,
  fire_reset: bool = False,
  frame_cap: int = 108_000,
  action_repeat: int = 4,
  maxpool: bool = True,
  screen: int = 84,
  num_threads: int = 1,
) -> GymnasiumBatch:
  """Makes N copies of a game.

  Observations are single gray frames, uint8 `[screen, screen]`; the network stacks them.

  Args:
    task: a game, in CamelCase or snake_case: MsPacman or ms_pacman.
    num_envs: N.
    seed: the seed of the batch.
    sticky_actions: probability, per frame, that the emulator repeats the previous action.
    full_action_space: whether to use all 18 actions, or only those that the game uses.
    noop_max: maximum of the random number of no-ops at the start of an episode; 0 for none.
    life_loss_terminates: whether losing a life ends the episode; the game continues, and scores are
      those of whole games. See `environments.lives`.
    fire_reset: whether an episode starts with FIRE, in games that require it.
    frame_cap: emulator frames after which an episode is truncated.
    action_repeat: emulator frames in one step.
    maxpool: whether an observation is the maximum of the last two frames of its step.
    screen: height and width of an observation in pixels. 84 is that of DQN; 42 makes a convolution four
      times cheaper, and suffices for games of few large objects, such as Pong.
    num_threads: threads that step the N games.

  Raises:
    ValueError: the game is unknown, or an option is out of range.
  """
  errors.require_task('atari', task, 'Pong')
  names = {_key(rom): rom for rom in roms.get_all_rom_ids()}
  if _key(task) not in names:
    raise errors.unknown_task('atari', task, (_camel_case(rom) for rom in names.values()))
  errors.require_option(0 <= sticky_actions <= 1, 'sticky_actions', sticky_actions, 'be in [0, 1]')
  errors.require_option(
    0 <= noop_max <= _MOST_NOOPS, 'noop_max', noop_max, f'be from 0 to {_MOST_NOOPS}'
  )
  errors.require_option(action_repeat >= 1, 'action_repeat', action_repeat, 'be at least 1')
  errors.require_option(
    frame_cap >= action_repeat, 'frame_cap', frame_cap, f'be at least action_repeat={action_repeat}'
  )
  errors.require_option(
    not maxpool or action_repeat >= 2, 'maxpool', 'true', 'be false where action_repeat=1'
  )
  errors.require_option(1 <= screen <= 210, 'screen', screen, 'be from 1 to 210 pixels')
  errors.require_option(num_threads >= 1, 'num_threads', num_threads, 'be at least 1')

  ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
  vector_env = ale_py.AtariVectorEnv(
    names[_key(task)],
    num_envs,
    num_threads=min(num_threads, num_envs),
    max_num_frames_per_episode=frame_cap,
    repeat_action_probability=sticky_actions,
    full_action_space=full_action_space,
    img_height=screen,
    img_width=screen,
    grayscale=True,
    stack_num=1,
    frameskip=action_repeat,
    maxpool=maxpool,
    noop_max=noop_max + 1 if noop_max else 0,  # ALE draws fewer than its argument.
    reward_clipping=False,
    use_fire_reset=fire_reset,
  )
  games: VectorEnv = vector_env
  if life_loss_terminates:
    actions = [action.name for action in vector_env.ale.get_action_set()]
    fires = fire_reset and 'FIRE' in actions
    games = LivesAsEpisodes(vector_env, actions.index('FIRE' if fires else 'NOOP'))
  protocol = (
    f'sticky_actions={sticky_actions} full_action_space={full_action_space} noop_max={noop_max} '
    f'life_loss_terminates={life_loss_terminates} fire_reset={fire_reset} '
    f'frame_cap={frame_cap} (unit: emulator frames) action_repeat={action_repeat} '
    f'maxpool={maxpool} screen={screen} rewards=raw'
  )
  seeds = np.array(seeding.spawn(seed, num_envs))
  return GymnasiumBatch(games, seeds, action_repeat, protocol, observation_shape=(screen, screen))


def _key(game: str) -> str:
  """Returns the normalized spelling of a game: 'mspacman' for MsPacman and ms_pacman."""
  return game.replace('_', '').lower()


def _camel_case(rom: str) -> str:
  """Returns 'MsPacman' for 'ms_pacman'."""
  return ''.join(word.capitalize() for word in rom.split('_'))
