"""The five games of MinAtar (Young & Tian 2019, MinAtar: An Atari-Inspired Testbed), on the CPU.

The games are those of the package `minatar`, stepped in sequence. Sticky actions and the time limit are
applied here. Anakin plays the same games in JAX: `agents.anakin.environments.minatar`. Tests compare the
two step by step.

Importing `minatar` imports seaborn for a display: 2 s and 120 MB in every actor. The module of a game
needs only NumPy, so it is loaded by its path.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Any

import dm_env
import numpy as np
from acme import specs

from environments import errors, seeding
from environments.base import BatchedEnvironment

_GAMES = {
  'Asterix': 'asterix',
  'Breakout': 'breakout',
  'Freeway': 'freeway',
  'Seaquest': 'seaquest',
  'SpaceInvaders': 'space_invaders',
}
_NUM_ACTIONS = 6  # No-op, left, up, right, down, fire.
_NOOP = 0
# Freeway's own time limit. Its observation does not show the time, so it truncates.
_FREEWAY_STEPS = 2_500


class MinAtar(BatchedEnvironment):
  """`N` games of one kind.

  Observations are bool `[10, 10, C]`, a channel for each kind of object.
  """

  def __init__(
    self,
    games: list[Any],
    actions: list[int],
    seed: int,
    sticky_actions: float,
    max_episode_steps: int,
    protocol: str,
  ):
    """Initialises the batch.

    Args:
      games: N games of the package, each with its own random state.
      actions: the game's action for each action of the batch; the first is the no-op.
      seed: the seed of the sticky actions.
      sticky_actions: probability that a step repeats the previous action.
      max_episode_steps: steps after which an episode is truncated, at least 1.
      protocol: see the base class.
    """
    self.num_envs = len(games)
    self.protocol = protocol
    self._games = games
    self._actions = np.array(actions)
    self._rng = np.random.default_rng(seed)
    self._sticky_actions = sticky_actions
    self._max_episode_steps = max_episode_steps
    self._shape = tuple(games[0].state_shape())

  def reset(self) -> dm_env.TimeStep:
    """Starts N episodes. See the base class."""
    self._previous = np.full(self.num_envs, _NOOP)
    self._age = np.zeros(self.num_envs, int)
    self._ended = np.zeros(self.num_envs, bool)
    for game in self._games:
      game.reset()
    return dm_env.TimeStep(
      step_type=np.full(self.num_envs, int(dm_env.StepType.FIRST), np.uint8),
      reward=np.zeros(self.num_envs, np.float32),
      discount=np.ones(self.num_envs, np.float32),
      observation=np.stack([game.state() for game in self._games]),
    )

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """Steps the N games in sequence. See the base class."""
    repeats = self._rng.random(self.num_envs) < self._sticky_actions
    played = np.where(repeats, self._previous, self._actions[action])
    first = self._ended
    reward = np.zeros(self.num_envs, np.float32)
    terminated = np.zeros(self.num_envs, bool)
    observation = np.empty((self.num_envs, *self._shape), bool)
    for i, (game, starts, a) in enumerate(
      zip(self._games, first.tolist(), played.tolist(), strict=True)
    ):
      if starts:
        game.reset()
      else:
        reward[i], terminated[i] = game.act(a)
      observation[i] = game.state()
    self._previous = np.where(first, _NOOP, played)
    self._age = np.where(first, 0, self._age + 1)
    self._ended = terminated | (self._age == self._max_episode_steps)
    step_type = np.where(self._ended, int(dm_env.StepType.LAST), int(dm_env.StepType.MID))
    step_type[first] = int(dm_env.StepType.FIRST)
    return dm_env.TimeStep(
      step_type=step_type.astype(np.uint8),
      reward=reward,
      discount=np.float32(1) - terminated,
      observation=observation,
    )

  def observation_spec(self) -> specs.Array:
    """Returns bool `[10, 10, C]`."""
    return specs.Array(self._shape, bool, 'observation')

  def action_spec(self) -> specs.DiscreteArray:
    """Returns all six actions, or those that the game uses."""
    return specs.DiscreteArray(len(self._actions), np.int32, 'action')


def make(
  task: str,
  num_envs: int,
  seed: int,
  *,
  sticky_actions: float = 0.1,
  full_action_space: bool = True,
  difficulty_ramping: bool = True,
  max_episode_steps: int = 2_500,
) -> MinAtar:
  """Makes N games. The defaults are the package's, with Freeway's time limit for all.

  Args:
    task: Asterix, Breakout, Freeway, Seaquest or SpaceInvaders.
    num_envs: N.
    seed: the seed of the batch.
    sticky_actions: probability, per step, that the game repeats the previous action.
    full_action_space: whether to use all six actions, or only those that the game uses.
    difficulty_ramping: whether Asterix, Seaquest and SpaceInvaders become faster as they go on.
    max_episode_steps: steps after which an episode is truncated; Freeway's are at most 2,500.

  Raises:
    ValueError: the game is unknown, the package is missing, or an option is out of range.
  """
  errors.require_task('minatar', task, 'Breakout')
  if task not in _GAMES:
    raise errors.unknown_task('minatar', task, _GAMES, ', '.join(_GAMES))
  errors.require_option(0 <= sticky_actions <= 1, 'sticky_actions', sticky_actions, 'be in [0, 1]')
  errors.require_option(
    max_episode_steps >= 1, 'max_episode_steps', max_episode_steps, 'be at least 1'
  )
  limit = min(max_episode_steps, _FREEWAY_STEPS) if task == 'Freeway' else max_episode_steps
  games = []
  for game_seed in seeding.spawn(seed, num_envs):
    game = load(task).Env(ramping=difficulty_ramping)
    game.random = np.random.RandomState(game_seed)
    games.append(game)
  actions = list(range(_NUM_ACTIONS)) if full_action_space else games[0].minimal_action_set()
  protocol = (
    f'sticky_actions={sticky_actions} full_action_space={full_action_space} '
    f'difficulty_ramping={difficulty_ramping} max_episode_steps={limit} rewards=raw'
  )
  return MinAtar(games, actions, seed, sticky_actions, limit, protocol)


@functools.cache
def load(task: str) -> Any:
  """Returns the module of a game, without the package's display.

  Raises:
    ValueError: the package is not installed.
  """
  package = importlib.util.find_spec('minatar')
  if package is None or not package.submodule_search_locations:
    raise ValueError(
      f'--env=minatar:{task}: the package minatar is not installed; run `make add PACKAGES=minatar`.'
    )
  name = _GAMES[task]
  path = os.path.join(package.submodule_search_locations[0], 'environments', f'{name}.py')
  spec = importlib.util.spec_from_file_location(f'minatar_{name}', path)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module
