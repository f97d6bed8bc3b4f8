"""Games of pgx (Koyamada et al. 2023) for two players, as self-play and against an opponent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import pgx

from agents.anakin.environment import JaxEnvironment, begin_episode, transition
from agents.anakin.environments import errors, tic_tac_toe
from agents.turns import TurnActions
from agents.types import Array, Nest, Timestep

# Maps the observation of the player to move, its legal actions, bool `[A]`, and a key to an action.
Player = Callable[[Array, Array, Array], Array]


class SelfPlay:
  """A game in which the agent moves for both players; see `TurnActions`.

  Observations are bool `[H, W, 2]`: the pieces of the player to move, and those of the other.

  Attributes:
    evaluation: the same game against an opponent.
  """

  def __init__(
    self, game: Any, legal: Callable[[Array], Array], opponent: Player, random_moves: int = 0
  ):
    """Wraps a game.

    Args:
      game: from `pgx.make`.
      legal: maps observations `[B, ...]` to legal actions, bool `[B, A]`.
      opponent: of the evaluation.
      random_moves: maximum number of random moves at the start of a game; the number is uniform from 0.
    """
    self._game = game
    self._random_moves = random_moves
    self.observation_spec = dm_env.specs.Array(game.observation_shape, bool, 'observation')
    self.action_spec = TurnActions(game.num_actions, legal)
    self.evaluation: JaxEnvironment = AgainstOpponent(self, game, opponent)

  def reset(self, key: Array) -> tuple[Nest, Timestep]:
    """Begins a game. See `JaxEnvironment`."""
    init_key, count_key, *move_keys = jax.random.split(key, 2 + self._random_moves)
    state = self._game.init(init_key)
    count = jax.random.randint(count_key, (), 0, self._random_moves + 1)
    for i, move_key in enumerate(move_keys):
      moved = _moved(self._game, state, random_player, move_key)
      state = _where((i < count) & ~moved.terminated, moved, state)
    return state, begin_episode(state.observation)

  def step(self, state: Nest, action: Array, key: Array) -> tuple[Nest, Timestep]:
    """Moves for the player whose turn it is; an illegal move loses. See `JaxEnvironment`."""
    del key
    mover = state.current_player
    state = self._game.step(state, action)
    timestep = transition(state.observation, state.rewards[mover], state.terminated)
    return state, timestep._replace(discount=jnp.where(state.terminated, 0.0, -1.0))


class Match(NamedTuple):
  """One game against an opponent."""

  game: Nest  # pgx's state, in which the agent is to move.
  agent_starts: Array  # bool `[]`, whether the agent moved first.


class AgainstOpponent:
  """A game against an opponent, whose moves are part of the environment's steps.

  The agent moves first in every other game, and in the first one by chance. The reward is the outcome: 1
  for a win, 0 for a draw, -1 for a loss.
  """

  def __init__(self, specs: SelfPlay, game: Any, opponent: Player):
    """Wraps a game from `pgx.make`; the specs are those of self-play."""
    self.observation_spec = specs.observation_spec
    self.action_spec = specs.action_spec
    self._game = game
    self._opponent = opponent

  def reset(self, key: Array) -> tuple[Match, Timestep]:
    """Begins a game in which chance decides who starts. See `JaxEnvironment`."""
    coin_key, key = jax.random.split(key)
    return self._begin(jax.random.bernoulli(coin_key), key)

  def restart(self, state: Match, key: Array) -> tuple[Match, Timestep]:
    """Begins a game in which the other player starts. See `next_row`."""
    return self._begin(~state.agent_starts, key)

  def step(self, state: Match, action: Array, key: Array) -> tuple[Match, Timestep]:
    """Moves for the agent, then for the opponent. See `JaxEnvironment`."""
    agent = state.game.current_player
    moved = self._game.step(state.game, action)
    game = _where(moved.terminated, moved, self._reply(moved, key))
    timestep = transition(game.observation, game.rewards[agent], game.terminated)
    return Match(game, state.agent_starts), timestep

  def _begin(self, agent_starts: Array, key: Array) -> tuple[Match, Timestep]:
    game_key, reply_key = jax.random.split(key)
    game = self._game.init(game_key)
    game = _where(agent_starts, game, self._reply(game, reply_key))
    return Match(game, agent_starts), begin_episode(game.observation)

  def _reply(self, game: Any, key: Array) -> Any:
    return _moved(self._game, game, self._opponent, key)


def random_player(observation: Array, legal: Array, key: Array) -> Array:
  """Returns a legal action, all with the same probability, int32 `[]`."""
  del observation
  return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))


def _free_cells(observation: Array) -> Array:
  return ~observation.any(-1).reshape(len(observation), -1)


def _open_columns(observation: Array) -> Array:
  return ~observation[:, 0].any(-1)


_LEGAL = {'connect_four': _open_columns, 'tic_tac_toe': _free_cells}
_OPPONENTS: dict[str, dict[str, Callable[[], Player]]] = {
  'connect_four': {'random': lambda: random_player},
  'tic_tac_toe': {'random': lambda: random_player, 'perfect': tic_tac_toe.perfect_player},
}


def make(task: str, *, opponent: str = 'random', random_moves: int = 0) -> SelfPlay:
  """Makes one game.

  Args:
    task: tic_tac_toe or connect_four.
    opponent: of evaluations: random, whose legal moves all have the same probability; or perfect, for
      tic_tac_toe, which plays any move that is best.
    random_moves: a game of self-play begins after 0 to random_moves random moves, so that the agent also
      learns of positions that it would avoid.

  Raises:
    ValueError: the game is unknown, or has no such opponent, or the number is not one of its moves.
  """
  if task not in _LEGAL:
    raise errors.unknown_task('pgx', task, _LEGAL, ' here')
  opponents = _OPPONENTS[task]
  if opponent not in opponents:
    raise ValueError(
      f'--env_options=opponent={opponent} is unknown for pgx:{task}; there are: {", ".join(opponents)}.'
    )
  game = pgx.make(task)
  cells = math.prod(game.observation_shape[:2])
  if not 0 <= random_moves < cells:
    raise ValueError(
      f'--env_options=random_moves={random_moves} must be 0 or more, and below {cells}, the moves of a '
      'game.'
    )
  return SelfPlay(game, _LEGAL[task], opponents[opponent](), random_moves)


def _moved(game: Any, state: Any, player: Player, key: Array) -> Any:
  """Returns the state after a player's move."""
  return game.step(state, player(state.observation, state.legal_action_mask, key))


def _where(condition: Array, a: Nest, b: Nest) -> Nest:
  return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)
