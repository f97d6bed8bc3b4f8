"""MuZero's searches, against closed forms, and how exploration and temperature act."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.muzero.config import MuZeroConfig
from agents.muzero.search import Root, search, temperature, with_noise
from tests.agents import muzero_definition
from tests.agents.precision import enable_x64

# One decision: its rewards are known, nothing follows them.
REWARDS = np.array([0.5, -1.0, 2.0, 0.0])
PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
VALUE = 0.7
SIZE = 512
CONFIG = MuZeroConfig(discount=0.0)
GUMBEL = dataclasses.replace(CONFIG, search='gumbel', num_simulations=4)
PUCT = dataclasses.replace(CONFIG, search='puct', num_simulations=32)
QUICK = {'xla_backend_optimization_level': 0}  # Compilation is all of the cost.


def bandit(params, state, action):
  del params
  ones = jnp.ones(len(action))
  logits = jnp.log(jnp.asarray(PRIOR)) * ones[:, None]
  return jnp.asarray(REWARDS)[action], Root(logits, VALUE * ones, state)


@functools.cache
def compiled(config, dtype):
  """Returns the search; the cache has one function for each precision."""
  del dtype
  return jax.jit(lambda *x: search(config, bandit, *x), compiler_options=QUICK)


def searched(config, exploration, warmth=1.0, seed=0, invalid=None):
  """Searches at the decision in a batch of `SIZE`, with one exploration for each or for all."""
  dtype = jnp.asarray(1.0).dtype
  root = Root(
    jnp.log(jnp.asarray(PRIOR, dtype)) * jnp.ones((SIZE, 1), dtype),
    jnp.full(SIZE, VALUE, dtype),
    jnp.zeros((SIZE, 1), dtype),
  )
  exploration = jnp.broadcast_to(jnp.asarray(exploration, jnp.float32), SIZE)
  keys = jax.random.split(jax.random.key(seed), SIZE)
  if invalid is not None:
    invalid = jnp.tile(jnp.asarray(invalid), (SIZE, 1))
  inputs = (None, root, exploration, jnp.float32(warmth), keys, invalid)
  return jax.device_get(compiled(config, dtype)(*inputs))


@pytest.mark.slow
def test_gumbel_policy_is_the_closed_form():
  expected = muzero_definition.gumbel_policy(np.log(PRIOR), VALUE, REWARDS, np.ones(4))
  np.testing.assert_allclose(expected, [0.132118, 0.007737, 0.846027, 0.014117], atol=1e-6)
  with enable_x64(True):
    found = searched(GUMBEL, 0.0)
  np.testing.assert_allclose(found.policy, np.tile(expected, (SIZE, 1)), atol=1e-7)
  np.testing.assert_array_equal(found.action, 2)
  # The mean of the root's value and of those of the four visits.
  np.testing.assert_allclose(found.value, (VALUE + REWARDS.sum()) / 5, atol=1e-6)


@pytest.mark.slow
def test_gumbel_completes_values_of_actions_that_it_does_not_visit():
  few = dataclasses.replace(GUMBEL, num_simulations=2, max_considered_actions=2)
  for c_visit, c_scale, kind, value in ((50.0, 0.1, 'network', VALUE), (3.0, 1.0, 'chosen', 0.5)):
    config = dataclasses.replace(
      few, gumbel_value_scale=c_scale, gumbel_maxvisit=c_visit, search_value=kind
    )
    found = searched(config, 0.0)
    visits = np.array([1.0, 1.0, 0.0, 0.0])  # The most likely two.
    expected = muzero_definition.gumbel_policy(
      np.log(PRIOR), VALUE, REWARDS, visits, c_visit, c_scale
    )
    np.testing.assert_allclose(found.policy[0], expected, atol=1e-6)
    np.testing.assert_allclose(found.value, value, atol=1e-6)


@pytest.mark.slow
def test_puct_visits():
  found = searched(PUCT, 0.0)
  np.testing.assert_allclose(found.policy[0] * 32, [18, 1, 13, 0], atol=1e-4)
  np.testing.assert_array_equal(found.action, 0)


@pytest.mark.slow
@pytest.mark.parametrize('config', [GUMBEL, PUCT])
def test_only_exploration_is_random(config):
  half = SIZE // 2
  many = searched(config, np.repeat([0.0, 1.0], half))
  greedy, noisy = many.policy[:half], many.policy[half:]
  assert len(set(many.action[:half])) == 1 and len(set(many.action[half:])) > 1
  np.testing.assert_array_equal(greedy, np.broadcast_to(greedy[0], greedy.shape))
  if config.search == 'puct':  # With as many simulations as actions gumbel visits them all.
    assert len(np.unique(noisy, axis=0)) > 1


@pytest.mark.slow
def test_puct_acts_by_visits_at_its_temperature():
  config = dataclasses.replace(PUCT, dirichlet_fraction=0.0)
  for warmth in (1.0, 0.25):
    actions = np.concatenate([searched(config, 1.0, warmth, seed).action for seed in range(8)])
    visits = np.array([18.0, 1.0, 13.0, 0.0]) ** (1 / warmth)
    frequencies = np.bincount(actions, minlength=4) / len(actions)
    np.testing.assert_allclose(frequencies, visits / visits.sum(), atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize('config', [GUMBEL, PUCT])
def test_illegal_actions_are_never_searched(config):
  found = searched(config, 1.0, invalid=[False, True, True, False])
  assert set(found.action) <= {0, 3}
  np.testing.assert_allclose(found.policy[:, 1:3], 0.0, atol=1e-7)


def test_noise_at_the_root_is_shared_by_the_legal_actions():
  legal = jnp.asarray([True, False, True, False])
  keys = jax.random.split(jax.random.key(0), 4096)
  logits = jax.vmap(
    lambda key: with_noise(jnp.log(jnp.asarray(PRIOR, jnp.float32)), legal, 0.25, 0.3, key)
  )(keys)
  mixed = np.exp(logits)
  np.testing.assert_allclose(mixed.sum(axis=1), 1.0, rtol=1e-5)
  np.testing.assert_allclose(mixed[:, [1, 3]], 0.0, atol=1e-30)
  expected = 0.75 * np.array([2 / 3, 0.0, 1 / 3, 0.0]) + 0.25 * np.array([0.5, 0.0, 0.5, 0.0])
  np.testing.assert_allclose(mixed.mean(axis=0), expected, atol=0.01)
  # Dirichlet(0.3, 0.3) has the variance 1/4 / (0.6 + 1).
  np.testing.assert_allclose(mixed[:, 0].var(), 0.25**2 * 0.25 / 1.6, rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize('config', [GUMBEL, PUCT])
def test_in_turns_the_best_move_is_the_one_after_which_the_other_player_is_worst_off(config):
  values = jnp.asarray([0.5, -1.0, 2.0, 0.0])

  def moves(params, state, action):
    """Whoever moves first, at state 0, leaves the other with one of the values; then all are 0."""
    del params
    value = jnp.where(state[:, 0] == 0, values[action], 0.0)
    return jnp.zeros(len(action)), Root(jnp.zeros((len(action), 4)), value, state + 1)

  root = Root(jnp.zeros((2, 4)), jnp.zeros(2), jnp.zeros((2, 1)))
  noise = jnp.zeros(2), jnp.float32(1.0), jax.random.split(jax.random.key(0), 2)
  config = dataclasses.replace(config, discount=0.5, search_value='chosen')
  found_by = jax.jit(
    functools.partial(search, config, moves, None),
    static_argnames='in_turns',
    compiler_options=QUICK,
  )
  for in_turns, action, value in ((False, 2, 1.0), (True, 1, 0.5)):
    found = found_by(root, *noise, in_turns=in_turns)
    assert found.action.tolist() == [action] * 2
    if config.search == 'gumbel':  # It visits each move once.
      np.testing.assert_allclose(found.value, value, atol=1e-6)


def test_temperature_follows_training():
  config = dataclasses.replace(CONFIG, temperature_decay_steps=1000)
  found = [float(temperature(config, jnp.int32(t))) for t in (0, 499, 500, 749, 750, 10**9)]
  assert found == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
  assert float(temperature(CONFIG, jnp.int32(10**9))) == 1.0
  largest = jnp.int32(2**31 - 1)
  assert [float(temperature(config, t)) for t in (largest, largest + 1)] == [0.25, 0.25]
