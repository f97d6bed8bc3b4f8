"""MuZero's categories and targets: literal numbers, and a slow definition on random rows."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.muzero.categorical import expectation, two_hot
from agents.muzero.config import MuZeroConfig
from agents.muzero.targets import make_targets
from agents.types import FIRST, LAST, MID, Timestep
from tests.agents import muzero_definition
from tests.agents.recording import random_rows

CONFIG = MuZeroConfig(unroll_length=3, num_unroll_steps=2, n_step=2, discount=0.5)
NAMES = ('reward', 'value', 'policy')


def test_two_hot_literals():
  config = dataclasses.replace(CONFIG, rescale_epsilon=0.0)
  # h(x) = sqrt(x + 1) - 1 is 3.7 here.
  found = np.asarray(two_hot(config, jnp.float32(4.7**2 - 1)))
  assert found.shape == (601,) and found.dtype == np.float32
  np.testing.assert_allclose(found[[303, 304]], [0.3, 0.7], atol=1e-4)
  np.testing.assert_allclose(found.sum(), 1.0, atol=1e-6)
  np.testing.assert_array_equal(np.argmax(two_hot(config, jnp.zeros(2)), -1), 300)
  beyond = np.asarray(two_hot(config, jnp.float32([1e6, -1e6])))
  np.testing.assert_array_equal(beyond[:, [600, 0]], np.eye(2))


@pytest.mark.parametrize(('num_bins', 'max_bin'), [(601, 300.0), (21, 5.0), (3, 250.0)])
def test_two_hot_and_back(num_bins, max_bin):
  config = dataclasses.replace(CONFIG, num_bins=num_bins, max_bin=max_bin)
  x = jnp.float32([0.0, 1.0, -1.0, 0.1, 12.3, -20.0, 30.0])
  with np.errstate(divide='ignore'):
    logits = np.log(two_hot(config, x))
  np.testing.assert_allclose(expectation(config, logits), x, rtol=2e-4, atol=2e-4)
  np.testing.assert_array_equal(expectation(config, jnp.zeros((2, num_bins))), 0.0)


def test_two_hot_covers_the_published_range():
  x = jnp.float32([58_706.0, -58_706.0])
  hot = np.asarray(two_hot(MuZeroConfig(), x))
  assert np.argmax(hot[0]) == 600 and np.argmax(hot[1]) == 0
  np.testing.assert_allclose(expectation(MuZeroConfig(), np.log(hot + 1e-30)), x, rtol=1e-4)


def one_environment(step_types, rewards, discounts):
  """Targets of rows with values 10, 20, ..; the policy of row t is all on action t."""
  timestep = Timestep(
    jnp.asarray([step_types], jnp.uint8), jnp.float32([rewards]), jnp.float32([discounts]), None
  )
  values = 10.0 * jnp.arange(1, 8, dtype=jnp.float32)[None]
  return jax.tree.map(lambda x: x[0], make_targets(CONFIG, timestep, values, jnp.eye(7)[None]))


@pytest.mark.slow
def test_literal_within_an_episode():
  found = one_environment([MID] * 7, [9, 1, 2, 3, 4, 5, 6], [1] * 7)
  assert all(np.all(getattr(found, f'{name}_mask')) for name in NAMES)
  np.testing.assert_array_equal(found.reward, [[1, 2], [2, 3], [3, 4]])
  # r_1 + r_2 / 2 + v_2 / 4, with v_2 = 30.
  z = [1 + 1 + 7.5, 2 + 1.5 + 10, 3 + 2 + 12.5, 4 + 2.5 + 15, 5 + 3 + 17.5]
  np.testing.assert_array_equal(found.value, [z[:3], z[1:4], z[2:]])
  np.testing.assert_array_equal(np.argmax(found.policy, -1), [[0, 1, 2], [1, 2, 3], [2, 3, 4]])


def test_literal_the_reward_of_the_last_transition_is_learned_and_nothing_follows_it():
  steps = [MID, MID, LAST, FIRST, MID, MID, MID]
  found = one_environment(steps, [0, 1, 8, 0, 4, 5, 6], [1, 1, 0, 1, 1, 1, 1])
  # Start 1 is at the row before the terminal one: that reward is the first that its model predicts.
  np.testing.assert_array_equal(found.reward[:2], [[1, 8], [8, 0]])
  np.testing.assert_array_equal(found.reward_mask, [[1, 1], [1, 1], [0, 0]])
  np.testing.assert_array_equal(found.value[:2], [[1 + 4, 8, 0], [8, 0, 0]])
  np.testing.assert_array_equal(found.value_mask, [[1, 1, 1], [1, 1, 1], [0, 0, 0]])
  np.testing.assert_array_equal(found.policy_mask, [[1, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_literal_a_truncated_row_bootstraps_and_what_is_behind_it_is_unknown():
  steps = [MID, MID, LAST, FIRST, MID, MID, MID]
  found = one_environment(steps, [0, 1, 8, 0, 4, 5, 6], [1] * 7)
  np.testing.assert_array_equal(found.reward_mask, [[1, 1], [1, 0], [0, 0]])
  np.testing.assert_array_equal(found.reward[0], [1, 8])
  # The value of row 2 is 30, whatever the n of the steps.
  np.testing.assert_array_equal(found.value[0], [1 + 4 + 7.5, 8 + 15, 30])
  np.testing.assert_array_equal(found.value_mask, [[1, 1, 1], [1, 1, 0], [0, 0, 0]])
  np.testing.assert_array_equal(found.policy_mask, found.value_mask)


def test_literal_in_turns_the_winners_value_is_the_losers_negated():
  steps = [MID, MID, MID, LAST, FIRST, MID, MID]
  found = one_environment(steps, [0, 0, 0, 8, 0, 0, 0], [-1, -1, -1, 0, 1, -1, -1])
  # The player who moves at row 2 wins 8, the other loses them; from row 0 the target bootstraps with
  # row 2, where the same player moves and the value is 30, and from row 5 with row 6.
  z = [30 / 4, -8 / 2, 8, 0]
  np.testing.assert_array_equal(found.value[:2], [z[:3], z[1:]])
  np.testing.assert_array_equal(found.reward[:2], [[0, 0], [0, 8]])
  np.testing.assert_array_equal(found.value_mask[:2], True)
  np.testing.assert_array_equal(found.policy_mask[1], [1, 1, 0])


@pytest.mark.parametrize(('num_unroll_steps', 'n_step'), [(1, 1), (5, 3), (3, 10)])
def test_targets_are_the_definition_on_random_rows(num_unroll_steps, n_step):
  config = dataclasses.replace(
    CONFIG, unroll_length=6, num_unroll_steps=num_unroll_steps, n_step=n_step, discount=0.9
  )
  rows, batch_size = config.unroll_rows, 12
  timestep = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), random_rows(rows, batch_size))
  rng = np.random.default_rng(1)
  values = rng.normal(size=(batch_size, rows)).astype(np.float32)
  policies = rng.dirichlet(np.ones(3), (batch_size, rows)).astype(np.float32)
  found = jax.device_get(
    jax.jit(make_targets, static_argnums=0)(config, timestep, values, policies)
  )
  ends = jax.device_get(timestep)
  learned = dict.fromkeys(NAMES, 0)
  for b in range(batch_size):
    for t in range(config.unroll_length):
      walked = muzero_definition.targets(config, ends, values, policies, b, t)
      for k, step in enumerate(walked):
        for name, expected in zip(NAMES, step, strict=True):
          if name == 'reward' and k == 0:
            continue
          place = (b, t, k - 1) if name == 'reward' else (b, t, k)
          assert getattr(found, f'{name}_mask')[place] == (expected is not None), (name, b, t, k)
          if expected is not None:
            actual = getattr(found, name)[place]
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
            learned[name] += 1
  assert min(learned.values()) > 20
