"""Games of two players: whose turn, whose reward, which moves, who starts, and the perfect player."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin.environment import evaluated, next_row
from agents.anakin.environments import pgx, tic_tac_toe
from agents.muzero.agent import MuZero
from agents.muzero.categorical import expectation
from agents.muzero.config import MuZeroConfig
from agents.types import FIRST, LAST, MID, Timestep
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig

GAMES = ['tic_tac_toe', 'connect_four']
NUM_ENVS = 32
LINES = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]


def play(environment, choose, num_rows, seed=0):
  """Returns rows `[T, B]`, the actions after them, and the legal moves that pgx says they have.

  Args:
    environment: one environment.
    choose: maps an observation, legal moves and a key to an action.
    num_rows: T.
    seed: of everything.
  """

  def row(carry, key):
    state, timestep = carry
    keys = jax.random.split(key, (2, NUM_ENVS))
    legal = getattr(state, 'game', state).legal_action_mask
    action = jax.vmap(choose)(timestep.observation, legal, keys[0])
    later = jax.vmap(lambda *args: next_row(environment, *args))(
      state, timestep.step_type, action, keys[1]
    )
    return later, (timestep, action, legal)

  @jax.jit
  def run(key):
    first_key, key = jax.random.split(key)
    first = jax.vmap(environment.reset)(jax.random.split(first_key, NUM_ENVS))
    return jax.lax.scan(row, first, jax.random.split(key, num_rows))[1]

  return jax.device_get(run(jax.random.key(seed)))


@functools.cache
def at_random(task):
  """Returns self-play with random legal moves."""
  return play(pgx.make(task), pgx.random_player, 90)


@pytest.mark.slow
@pytest.mark.parametrize('task', GAMES)
def test_rows_of_self_play(task):
  rows, _, legal = at_random(task)
  environment = pgx.make(task)
  environment.observation_spec.validate(rows.observation[0, 0])
  np.testing.assert_array_equal(rows.step_type[1:] == FIRST, rows.step_type[:-1] == LAST)
  assert (rows.step_type == LAST).sum() > NUM_ENVS
  for step_type, discount in ((FIRST, 1), (MID, -1), (LAST, 0)):
    assert (rows.discount[rows.step_type == step_type] == discount).all()
  assert set(rows.reward[rows.step_type == LAST]) <= {0, 1}  # A legal move never loses.
  assert (rows.reward[rows.step_type != LAST] == 0).all()
  going_on = rows.step_type != LAST
  shown = jax.jit(environment.action_spec.legal)(rows.observation[going_on])
  np.testing.assert_array_equal(shown, legal[going_on])
  assert not shown.all(0).any()  # Each move is illegal somewhere.


def test_a_game_of_tic_tac_toe_by_its_rules():
  rows, actions, _ = at_random('tic_tac_toe')
  outcomes = set()
  for b in range(NUM_ENVS):
    for t in range(len(rows.reward)):
      if rows.step_type[t, b] == FIRST:
        board = np.zeros(9, int)  # 1 is a piece of the player to move, -1 one of the other.
      elif t:
        board[actions[t - 1, b]] = 1
        won = (board[LINES] == 1).all(1).any()
        assert (rows.step_type[t, b] == LAST) == (won or board.all())
        assert rows.reward[t, b] == won
        outcomes.add((int(won), int((board != 0).sum())))
        board = -board
      pieces = rows.observation[t, b].reshape(9, 2)
      np.testing.assert_array_equal(pieces[:, 0] * 1 - pieces[:, 1], board)
  assert {(1, 5), (1, 6), (1, 7), (0, 9)} <= outcomes  # Both players win, and some draw.


def test_an_illegal_move_loses_at_once():
  environment = pgx.make('tic_tac_toe')
  state, _ = environment.reset(jax.random.key(0))
  step = jax.jit(environment.step)
  state, _ = step(state, 4, jax.random.key(0))
  _, timestep = step(state, 4, jax.random.key(0))
  assert (timestep.step_type, timestep.reward, timestep.discount) == (LAST, -1, 0)


def starts(rows):
  """Returns for each environment whether the agent started its games, in turn."""
  first = rows.step_type == FIRST
  empty = ~rows.observation.any((-3, -2, -1))
  return [empty[first[:, b], b].tolist() for b in range(NUM_ENVS)]


@pytest.mark.slow
@pytest.mark.parametrize('task', GAMES)
def test_the_agent_and_its_opponent_start_in_turn(task):
  rows, _, _ = play(evaluated(pgx.make(task)), pgx.random_player, 60)
  games = starts(rows)
  assert {game[0] for game in games} == {False, True}
  assert all(a != b for game in games for a, b in itertools.pairwise(game))
  assert sum(map(len, games)) > 2 * NUM_ENVS
  assert set(np.unique(rows.discount)) == {0, 1} and set(np.unique(rows.reward)) == {-1, 0, 1}
  own, other = np.moveaxis(rows.observation.sum((2, 3)), -1, 0)
  going_on = rows.step_type != LAST  # The agent is to move.
  assert (((other - own) == 0) | ((other - own) == 1))[going_on].all()


@pytest.mark.slow
def test_games_of_self_play_begin_after_random_moves_and_those_against_an_opponent_do_not():
  environment = pgx.make('tic_tac_toe', random_moves=3)
  rows, _, _ = play(environment, pgx.random_player, 90)
  pieces = rows.observation.sum((2, 3))
  first = pieces[rows.step_type == FIRST]
  own, other = first.T
  missing = other - own  # The player to move has as many pieces, or one fewer.
  assert set(np.unique(missing)) <= {0, 1}
  counts = np.bincount(first.sum(-1))
  assert len(counts) == 4 and counts.min() > 0.15 * counts.sum()
  assert len(np.unique(rows.observation[rows.step_type == FIRST], axis=0)) > 30
  rows, _, _ = play(evaluated(environment), pgx.random_player, 30)
  pieces = rows.observation.sum((2, 3, 4))
  assert pieces[rows.step_type == FIRST].max() == 1  # Of an opponent that starts.


@pytest.mark.slow
def test_the_perfect_player_never_loses_as_agent_or_as_opponent():
  perfect = tic_tac_toe.perfect_player()
  against_random = evaluated(pgx.make('tic_tac_toe'))
  rows, _, _ = play(against_random, perfect, 90)
  returns = rows.reward[rows.step_type == LAST]
  assert returns.min() == 0 and returns.mean() > 0.8
  against_perfect = evaluated(pgx.make('tic_tac_toe', opponent='perfect'))
  rows, _, _ = play(against_perfect, pgx.random_player, 90)
  returns = rows.reward[rows.step_type == LAST]
  assert returns.max() == 0 and returns.mean() < -0.7
  rows, _, _ = play(against_perfect, perfect, 90)
  assert (rows.reward == 0).all() and (rows.step_type == LAST).sum() > NUM_ENVS


@pytest.mark.parametrize('perfect_starts', [True, False])
def test_no_reply_to_the_perfect_player_wins(perfect_starts):
  """Every best move, against every reply."""
  table, outcomes = tic_tac_toe.best_moves(), set()

  @functools.cache
  def go_on(board, perfect_moves):
    """Walks all games on from a board, on which 1 is a piece of the player to move, 2 the other's."""
    cells = [cell for cell in range(9) if not board[cell]]
    if any(all(board[cell] == 2 for cell in line) for line in LINES) or not cells:
      lost = any(all(board[cell] == 2 for cell in line) for line in LINES)
      outcomes.add(0 if not lost else -1 if perfect_moves else 1)
      return
    best = np.flatnonzero(table[int(''.join(map(str, board[::-1])), 3)])
    assert len(best) or not perfect_moves
    for cell in best if perfect_moves else cells:
      after = [(0, 2, 1)[x] for x in board]
      after[cell] = 2
      go_on(tuple(after), not perfect_moves)

  go_on((0,) * 9, perfect_starts)
  assert outcomes == {0, 1}


def test_the_random_player_makes_each_legal_move_as_often():
  legal = jnp.asarray([True, False, True, True, False])
  keys = jax.random.split(jax.random.key(0), 3000)
  moves = jax.jit(jax.vmap(lambda key: pgx.random_player(None, legal, key)))(keys)
  counts = np.bincount(moves, minlength=5)
  assert (counts[[1, 4]] == 0).all() and (abs(counts[[0, 2, 3]] - 1000) < 100).all()


@pytest.mark.slow
@pytest.mark.parametrize(
  'task, options',
  [
    ('tic_tac_toe', {'search': 'gumbel'}),
    ('tic_tac_toe', {'search': 'puct'}),
    ('connect_four', {'search': 'gumbel', 'frame_stack': 2}),
  ],
)
def test_muzero_never_makes_an_illegal_move(task, options):
  rows, _, legal = jax.tree.map(lambda x: x[:60].reshape(-1, *x.shape[2:]), at_random(task))
  environment = pgx.make(task)
  config = MuZeroConfig(
    **options, num_simulations=4, mlp_sizes=(8,), hidden_state_size=8, head_size=8, model='mlp'
  )
  agent = MuZero(config, environment.observation_spec, environment.action_spec)
  params = jax.jit(agent.init)(jax.random.key(0)).params
  act = jax.jit(agent.act, compiler_options={'xla_backend_optimization_level': 0})
  size = len(rows.reward)
  keys = jax.random.split(jax.random.key(1), size)
  exploration = jnp.arange(size) % 2.0
  core_state = jax.tree.map(lambda x: ~x, agent.initial_core_state(size))  # Other frames mislead.
  answer = jax.device_get(act(params, core_state, Timestep(*rows), exploration, keys))
  going_on = rows.step_type != LAST
  assert legal[np.arange(size), answer.action][going_on].all()
  policy = answer.extras['search_policy']
  assert (policy[~legal & going_on[:, None]] == 0).all()
  np.testing.assert_allclose(
    policy.sum(1), 1, atol=1e-5
  )  # Also where a full board has no legal move.
  assert len(set(answer.action)) == legal.shape[1]


@pytest.mark.slow
def test_an_actor_critic_makes_legal_moves_only():
  rows, _, legal = jax.tree.map(
    lambda x: x[:60].reshape(-1, *x.shape[2:]), at_random('connect_four')
  )
  environment = pgx.make('connect_four')
  config = VTraceConfig(mlp_sizes=(8,), torso='mlp')
  agent = VTrace(config, environment.observation_spec, environment.action_spec)
  params = jax.jit(agent.init)(jax.random.key(0)).params
  size, going_on = len(rows.reward), rows.step_type != LAST
  keys = jax.random.split(jax.random.key(1), size)
  answer = jax.jit(agent.act)(params, {}, Timestep(*rows), jnp.arange(size) % 2.0, keys)
  assert legal[np.arange(size), answer.action][going_on].all()
  assert len(set(answer.action.tolist())) == legal.shape[1]


@pytest.mark.slow
def test_muzeros_search_subtracts_what_the_other_player_gains():
  environment = pgx.make('tic_tac_toe')
  config = MuZeroConfig(
    num_simulations=1, search_value='chosen', discount=0.5, mlp_sizes=(8,), head_size=8, model='mlp'
  )
  agent = MuZero(config, environment.observation_spec, environment.action_spec)
  params = jax.jit(agent.init)(jax.random.key(0)).params
  network = jax.tree.map(
    lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size)).reshape(x.shape), params.network
  )
  boards = jnp.zeros((1, 3, 3, 2), bool)

  @functools.partial(jax.jit, compiler_options={'xla_backend_optimization_level': 0})
  def plan(network):
    keys = jax.random.split(jax.random.key(0), 1)
    found = agent.plan(params._replace(network=network), boards, jnp.zeros(1), keys)
    state = agent.model.apply(network, boards, method='represent')
    after, reward = agent.model.apply(network, state, found.action, method='dynamics')
    value = agent.model.apply(network, after, method='predict').value_logits
    return found.value, expectation(config, reward), expectation(config, value)

  chosen, reward, value = plan(network)
  assert abs(value) > 0.1
  np.testing.assert_allclose(chosen, reward - 0.5 * value, rtol=1e-4)


@pytest.mark.parametrize(
  'task, options, words',
  [
    ('tictactoe', {}, '--env=pgx:tictactoe: .* did you mean tic_tac_toe'),
    ('connect_four', {'opponent': 'perfect'}, 'opponent=perfect is unknown .*: random.$'),
    ('tic_tac_toe', {'random_moves': -1}, 'random_moves=-1 must be 0 or more'),
    ('tic_tac_toe', {'random_moves': 9}, 'random_moves=9 must be .* below 9, the moves'),
    ('connect_four', {'random_moves': 10**5}, 'below 42'),
  ],
)
def test_an_environment_that_cannot_be_played_is_rejected_in_one_sentence(task, options, words):
  with pytest.raises(ValueError, match=words):
    pgx.make(task, **options)
