"""R2D2's targets: literal numbers, and a slow definition on random rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.r2d2.targets import double_q_targets
from agents.returns import n_step_returns
from agents.types import FIRST, LAST, MID
from tests.agents import r2d2_definition
from tests.agents.recording import random_rows


def column(x, dtype=jnp.float32):
  return jnp.asarray(x, dtype)[:, None]


def returns(n_step, step_types, rewards, discounts, gamma=0.5):
  """n-step returns of one environment whose rows have the values 10, 20, 30, 40, 50."""
  return n_step_returns(
    column([10, 20, 30, 40, 50]),
    column(rewards[1:]),
    gamma * column(discounts[1:]),
    column(step_types[:-1], jnp.uint8) != LAST,
    n_step,
  )[:, 0]


def test_literal_without_episode_ends():
  rows = [MID] * 5, [7, 1, 2, 3, 4], [1] * 5
  np.testing.assert_array_equal(returns(1, *rows), [11, 17, 23, 29])
  # The last has but one transition left: 4 + 50/2.
  np.testing.assert_array_equal(returns(2, *rows), [9.5, 13.5, 17.5, 29])
  everything = [1 + 1 + 0.75 + 0.5 + 50 / 16, 2 + 1.5 + 1 + 50 / 8, 17.5, 29]
  np.testing.assert_array_equal(returns(4, *rows), everything)
  np.testing.assert_array_equal(returns(9, *rows), everything)


def test_literal_termination_bootstraps_from_nothing():
  rows = [FIRST, MID, LAST, FIRST, MID], [0, 1, 2, 0, 4], [1, 1, 0, 1, 1]
  for n_step in (2, 3, 4):
    # Row 2 is LAST: its own entry is no target. Row 3 begins another episode.
    np.testing.assert_array_equal(returns(n_step, *rows)[jnp.array([0, 1, 3])], [2, 2, 29])
  np.testing.assert_array_equal(returns(1, *rows)[jnp.array([0, 1, 3])], [11, 2, 29])


def test_literal_truncation_bootstraps_from_the_last_observation():
  rows = [FIRST, MID, LAST, FIRST, MID], [0, 1, 2, 0, 4], [1, 1, 1, 1, 1]
  for n_step in (2, 3, 4):
    # 1 + 2/2 + 30/4 and, with a horizon of one, 2 + 30/2; nothing of what comes after row 2.
    np.testing.assert_array_equal(returns(n_step, *rows)[jnp.array([0, 1, 3])], [9.5, 17, 29])


def test_literal_double_q():
  # With epsilon 0, h(x) = sqrt(1 + x) - 1 for x >= 0: h(8) = 2, h(3) = 1.
  q_online = jnp.float32([[[9, 9]], [[0, 1]], [[1, 0]]])
  q_target = jnp.float32([[[9, 9]], [[7, 2]], [[1, 5]]])
  targets = double_q_targets(
    q_online,
    q_target,
    jnp.float32([[4], [1.5]]),
    jnp.float32([[0.5], [0.5]]),
    jnp.ones((2, 1), bool),
    n_step=1,
    rescale_epsilon=0.0,
  )
  # The target network's own favourites would give h(4 + 63/2) and h(1.5 + 35/2).
  np.testing.assert_allclose(targets, [[2.0], [1.0]], rtol=1e-6)


@pytest.mark.parametrize('n_step', [1, 3, 5, 12])
def test_the_slow_definition_on_random_rows(n_step):
  timestep = random_rows(12, 7, seed=n_step)
  values = np.random.default_rng(n_step).normal(size=(12, 7)).astype(np.float32)
  valid = np.asarray(timestep.step_type[:-1]) != LAST
  actual = n_step_returns(
    values, timestep.reward[1:], 0.9 * timestep.discount[1:], jnp.asarray(valid), n_step
  )
  actual, timestep = jax.device_get((actual, timestep))
  definition = r2d2_definition.n_step_return
  for t, b in zip(*np.nonzero(valid), strict=True):
    expected = definition(values, timestep, b, t, n_step, 0.9)
    np.testing.assert_allclose(actual[t, b], expected, rtol=1e-5, atol=1e-5)


def test_targets_carry_no_gradient():
  q = jnp.ones((4, 2, 3))
  ones = jnp.ones((3, 2))

  def total(q_online, q_target):
    options = {'n_step': 2, 'rescale_epsilon': 1e-3}
    return jnp.sum(double_q_targets(q_online, q_target, ones, ones, ones > 0, **options))

  assert all(not np.any(g) for g in jax.grad(total, (0, 1))(q, q))
