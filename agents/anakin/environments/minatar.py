"""The five games of MinAtar (Young & Tian 2019, MinAtar: An Atari-Inspired Testbed), in JAX.

The games are gymnax's, which step as those of the package `minatar` do, except where corrected here.
Options and defaults are those of `environments.minatar`, which plays the package's games.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import dm_env.specs
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments.minatar import seaquest, seaquest_helpers

from agents.anakin.environment import as_arrays, begin_episode, transition
from agents.anakin.environments import errors
from agents.types import Array, Nest, Timestep

_GAMES = ('Asterix', 'Breakout', 'Freeway', 'Seaquest', 'SpaceInvaders')
_NOOP = 0
# Freeway's own time limit. Its observation does not show the time, so it truncates.
_FREEWAY_STEPS = 2_500
# gymnax provides for 100 objects of each kind in Seaquest, and time is quadratic in them. At most one
# enemy appears per step. At that rate enemies cross the board in 30 steps, and have at most one bullet.
_SEAQUEST_OBJECTS = 32


class MinAtarState(NamedTuple):
  """One game."""

  game: Nest  # gymnax's state.
  previous: Array  # int32 `[]`, the action of the previous step.


class MinAtar:
  """Observations are bool `[10, 10, C]`, a channel for each kind of object."""

  def __init__(self, environment: Any, params: Any, sticky_actions: float, ramping: bool):
    """Wraps a game of gymnax.

    Args:
      environment: the game from `gymnax.make`.
      params: its parameters; their time limit truncates episodes.
      sticky_actions: probability that a step repeats the previous action.
      ramping: whether the game becomes faster over time.
    """
    self._environment = environment
    self._params = params.replace(ramping=ramping) if hasattr(params, 'ramping') else params
    self._sticky_actions = sticky_actions
    self._ramping = ramping
    self.observation_spec = dm_env.specs.Array(environment.obs_shape, bool, 'observation')
    self.action_spec = dm_env.specs.DiscreteArray(environment.num_actions, np.int32, 'action')

  def reset(self, key: Array) -> tuple[MinAtarState, Timestep]:
    """Begins an episode. See `JaxEnvironment`."""
    observation, game = self._environment.reset_env(key, self._params)
    if hasattr(game, 'ramping'):
      game = game.replace(ramping=self._ramping)
    state = MinAtarState(as_arrays(game), jnp.int32(_NOOP))
    return state, begin_episode(observation.astype(bool))

  def step(self, state: MinAtarState, action: Array, key: Array) -> tuple[MinAtarState, Timestep]:
    """Steps the game, with the previous action if that sticks. See `JaxEnvironment`."""
    sticky_key, spawn_key, game_key = jax.random.split(key, 3)
    repeats = jax.random.uniform(sticky_key) < self._sticky_actions
    action = jnp.where(repeats, state.previous, action)
    game = state.game
    if hasattr(game, 'entities'):
      game = _spawn_in_asterix(game, spawn_key)
    observation, game, reward, terminated, _ = self._environment.step_env(
      game_key, game, action, self._params
    )
    truncated = self._environment.is_truncated(game, self._params)
    timestep = transition(observation.astype(bool), reward, terminated, truncated)
    return MinAtarState(as_arrays(game), action), timestep


def make(
  task: str,
  *,
  sticky_actions: float = 0.1,
  full_action_space: bool = True,
  difficulty_ramping: bool = True,
  max_episode_steps: int = 2_500,
) -> MinAtar:
  """Makes one game. The defaults are the package's, with Freeway's time limit for all.

  Args:
    task: Asterix, Breakout, Freeway, Seaquest or SpaceInvaders.
    sticky_actions: probability, per step, that the game repeats the previous action.
    full_action_space: whether to use all six actions, or only those that the game uses.
    difficulty_ramping: whether Asterix, Seaquest and SpaceInvaders become faster as they go on.
    max_episode_steps: steps after which an episode is truncated; Freeway's are at most 2,500.

  Raises:
    ValueError: the game is unknown, or an option is out of range.
  """
  if task not in _GAMES:
    raise errors.unknown_task('minatar', task, _GAMES)
  if not 0 <= sticky_actions <= 1:
    raise ValueError(f'--env_options=sticky_actions={sticky_actions} must be in [0, 1].')
  if max_episode_steps < 1:
    raise ValueError(f'--env_options=max_episode_steps={max_episode_steps} must be at least 1.')
  seaquest.MAX_ENTITIES = seaquest_helpers.MAX_ENTITIES = _SEAQUEST_OBJECTS
  limit = min(max_episode_steps, _FREEWAY_STEPS) if task == 'Freeway' else max_episode_steps
  environment, params = gymnax.make(f'{task}-MinAtar', use_minimal_action_set=not full_action_space)
  params = params.replace(max_steps_in_episode=limit)
  return MinAtar(environment, params, sticky_actions, difficulty_ramping)


def _spawn_in_asterix(game: Any, key: Array) -> Any:
  """Returns the state of Asterix after a new object entered in a free row, if its time has come.

  gymnax's own rule never tries one of the rows, and where none is free it removes an object. It does
  nothing in a state that this returns, because the time of the next object is ahead.

  Args:
    game: gymnax's state of Asterix; a row of `entities` is x, y, whether it moves right, gold, present.
    key: a typed PRNG key.
  """
  right_key, gold_key, row_key = jax.random.split(key, 3)
  right = jax.random.bernoulli(right_key).astype(jnp.int32)
  gold = jax.random.bernoulli(gold_key, 1 / 3).astype(jnp.int32)
  free = game.entities[:, 4] == 0
  row = jax.random.categorical(row_key, jnp.where(free, 0.0, -jnp.inf))
  due = game.spawn_timer == 0
  entity = jnp.stack([9 * (1 - right), row + 1, right, gold, jnp.int32(1)])
  entities = jnp.where(due & free.any(), game.entities.at[row].set(entity), game.entities)
  spawn_timer = jnp.where(due, game.spawn_speed, game.spawn_timer)
  return game.replace(entities=entities, spawn_timer=spawn_timer)
