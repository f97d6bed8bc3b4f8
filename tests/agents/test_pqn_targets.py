"""The lambda-returns of PQN: literal numbers, episode ends, and their definition by n-step returns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.pqn.targets import lambda_returns
from agents.returns import n_step_returns
from agents.types import FIRST, LAST, MID
from tests.agents.precision import enable_x64
from tests.agents.recording import random_rows

VALUES = 10.0, 20.0, 30.0, 40.0, 50.0


def returns(lambda_, step_types, rewards, discounts, values=VALUES, gamma=0.5):
  """Returns those of one environment; the arguments are by row."""

  def column(x):
    return jnp.asarray(x, jnp.float32)[:, None]

  valid = jnp.asarray(step_types[:-1])[:, None] != LAST
  found = lambda_returns(
    column(values), column(rewards[1:]), gamma * column(discounts[1:]), valid, lambda_
  )
  return found[:, 0]


def test_literal_within_an_episode():
  rows = [MID] * 5, [7, 1, 2, 3, 4], [1] * 5
  # Backwards, with gamma and lambda 1/2: 4 + 50/2 is 29; then r + (return + value) / 4.
  expected = [9.640625, 14.5625, 20.25, 29.0]
  np.testing.assert_array_equal(returns(0.5, *rows), expected)
  np.testing.assert_array_equal(returns(0.0, *rows), [11, 17, 23, 29])  # r + value / 2.
  sums = [1 + 1 + 0.75 + 0.5 + 50 / 16, 2 + 1.5 + 1 + 50 / 8, 3 + 2 + 50 / 4, 29]
  np.testing.assert_array_equal(returns(1.0, *rows), sums)


ENDED = [FIRST, MID, LAST, FIRST, MID]


def test_literal_termination_bootstraps_from_nothing():
  found = returns(0.5, ENDED, [0, 1, 2, 0, 4], [1, 1, 0, 1, 1])
  # 2 alone, then 1 + (2 + 20) / 4; row 2 is LAST, and row 3 begins another episode.
  np.testing.assert_array_equal(found[jnp.array([0, 1, 3])], [6.5, 2, 29])


def test_literal_truncation_bootstraps_from_the_last_observation_alone():
  found = returns(0.5, ENDED, [0, 1, 2, 0, 4], [1, 1, 1, 1, 1])
  # 2 + 30/2, then 1 + (17 + 20) / 4.
  np.testing.assert_array_equal(found[jnp.array([0, 1, 3])], [10.25, 17, 29])


@pytest.mark.parametrize('discount', [0, 1])
def test_nothing_of_the_row_after_a_last_row_reaches_the_episode_before(discount):
  rewards, discounts = [0, 1, 2, 0, 4], [1, 1, discount, 1, 1]
  before = returns(0.5, ENDED, rewards, discounts)
  nan = float('nan')
  after = returns(
    0.5,
    ENDED,
    [0, 1, 2, nan, -100],
    [1, 1, discount, nan, 0.5],
    values=(10.0, 20.0, 30.0, -1e6, 1e6),
  )
  np.testing.assert_array_equal(after[:2], before[:2])
  assert np.isfinite(after).all()


def test_an_episode_that_ends_with_the_unroll_bootstraps_from_its_last_row():
  rows = [FIRST, MID, MID, MID, LAST], [0, 1, 1, 1, 1]
  assert returns(0.5, *rows, [1, 1, 1, 1, 0])[-1] == 1
  assert returns(0.5, *rows, [1, 1, 1, 1, 1])[-1] == 26


@pytest.mark.parametrize('lambda_', [0.0, 0.65, 0.95, 1.0])
def test_they_are_the_mixture_of_n_step_returns(lambda_):
  """Weights (1 - lambda) lambda^(n-1), and all of the rest on the longest."""
  num_rows, batch_size = 12, 7
  timestep = jax.device_get(random_rows(num_rows, batch_size, seed=4))
  assert np.any((timestep.step_type == LAST) & (timestep.discount == 1))
  assert np.any((timestep.step_type == LAST) & (timestep.discount == 0))
  values = np.random.default_rng(0).normal(size=(num_rows, batch_size))
  valid = timestep.step_type[:-1] != LAST
  with enable_x64(True):
    parts = (
      jnp.asarray(values),
      jnp.asarray(timestep.reward[1:], jnp.float64),
      0.9 * jnp.asarray(timestep.discount[1:], jnp.float64),
      jnp.asarray(valid),
    )
    longest = num_rows - 1
    expected = lambda_ ** (longest - 1) * n_step_returns(*parts, longest)
    for n in range(1, longest):
      expected += (1 - lambda_) * lambda_ ** (n - 1) * n_step_returns(*parts, n)
    actual = lambda_returns(*parts, lambda_)
    np.testing.assert_allclose(actual[valid], expected[valid], rtol=0, atol=1e-12)


def test_no_gradient_flows_through_them():
  valid = jnp.ones((4, 1), bool)
  parts = jnp.ones((4, 1)), 0.5 * jnp.ones((4, 1)), valid, 0.5
  gradient = jax.grad(lambda values: jnp.sum(lambda_returns(values, *parts)))(jnp.ones((5, 1)))
  assert not np.any(gradient)
