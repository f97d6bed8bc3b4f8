"""Generalized advantages against their definition and hand-made episodes, of fresh and stale data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.ppo.targets import generalized_advantages
from agents.types import FIRST, LAST, MID
from tests.agents.precision import enable_x64
from tests.agents.test_vtrace_targets import definition as vtrace_definition

GAMMA = 0.9


def random_inputs(seed, num_steps=12, batch_size=6):
  """Returns values, rewards and discounts, `[T+1, B]` each, and step types, of whole episodes.

  Index t is row t; reward and discount are those that arrive with it.
  """
  rng = np.random.default_rng(seed)
  shape = (num_steps + 1, batch_size)
  step_type = np.full(shape, MID)
  for t, b in np.ndindex(shape):
    if t and step_type[t - 1, b] == LAST:
      step_type[t, b] = FIRST
    elif rng.uniform() < 0.3:
      step_type[t, b] = LAST
  terminates = (step_type == LAST) & (rng.uniform(size=shape) < 0.5)
  assert terminates.any() and ((step_type == LAST) & ~terminates).any()
  values, rewards = rng.normal(size=(2, *shape))
  return values, rewards, np.where(terminates, 0.0, 1.0), step_type


def estimates(values, rewards, discounts, step_type, rhos=None, **options):
  """Calls `generalized_advantages` with the rows of `random_inputs`."""
  rhos = np.ones_like(rewards[:-1]) if rhos is None else rhos
  return generalized_advantages(
    jnp.asarray(values),
    jnp.asarray(rewards[1:]),
    jnp.asarray(GAMMA * discounts[1:]),
    jnp.asarray(rhos),
    jnp.asarray(step_type[:-1] != LAST),
    **options,
  )


def k_step_advantages(values, rewards, discounts, step_type, s):
  """Returns A^(1) .. A^(K) of row s, equation (15): K steps remain of the episode or the unroll."""
  advantages, total, weight = [], -values[s], 1.0
  for t in range(s + 1, len(values)):
    total += weight * rewards[t]
    weight *= GAMMA * discounts[t]
    advantages.append(total + weight * values[t])
    if step_type[t] == LAST:
      break
  return advantages


def definition(values, rewards, discounts, step_type, lambda_):
  """Equation (16) of Schulman et al. 2016, a mean of k-step advantages; the last has the rest."""
  advantages = np.zeros_like(rewards[:-1])
  for s, b in np.ndindex(advantages.shape):
    if step_type[s, b] == LAST:
      continue
    *earlier, longest = k_step_advantages(
      values[:, b], rewards[:, b], discounts[:, b], step_type[:, b], s
    )
    weighted = [(1 - lambda_) * lambda_**k * a for k, a in enumerate(earlier)]
    advantages[s, b] = sum(weighted) + lambda_ ** len(earlier) * longest
  return advantages


@pytest.mark.parametrize('lambda_', [0.0, 0.3, 0.95, 1.0])
def test_matches_the_definition(lambda_):
  rows = random_inputs(seed=0)
  expected = definition(*rows, lambda_)
  with enable_x64(True):
    actual = estimates(*rows, lambda_=lambda_)
    assert actual.advantages.dtype == jnp.float64
    np.testing.assert_allclose(actual.advantages, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(actual.values, rows[0][:-1] + expected, rtol=0, atol=1e-12)


def corrected_definition(
  values, rewards, discounts, valid, rhos, rho_bar, c_bar, lambda_, weighs_own=False
):
  """The advantages of stale data as a double sum, in the indices of `generalized_advantages`.

  The clipped ratio of PPO's loss weighs row s, so its own ratios enter only with `weighs_own`. Then
  the sum is v_s - V(x_s), equation (1) of IMPALA with lambda.
  """
  advantages = np.zeros_like(rewards)
  for s, b in np.ndindex(advantages.shape):
    weight = 1.0
    for t in range(s, len(rewards)):
      if not valid[t, b]:
        break
      delta = rewards[t, b] + discounts[t, b] * values[t + 1, b] - values[t, b]
      rho, c = min(rho_bar, rhos[t, b]), min(c_bar, rhos[t, b])
      if t == s and not weighs_own:
        rho = c = 1.0
      advantages[s, b] += weight * rho * delta
      weight *= discounts[t, b] * lambda_ * c
  return advantages


@pytest.mark.parametrize(
  ('rho_bar', 'c_bar', 'lambda_'), [(1, 1, 1), (2.0, 1.5, 0.9), (np.inf, 0.7, 0.5), (1, 1, 0)]
)
def test_stale_data_matches_its_definition(rho_bar, c_bar, lambda_):
  values, rewards, discounts, step_type = random_inputs(seed=1)
  rhos = np.exp(np.random.default_rng(2).normal(size=rewards[1:].shape))
  inputs = (values, rewards[1:], GAMMA * discounts[1:])
  valid = step_type[:-1] != LAST
  expected = corrected_definition(*inputs, valid, rhos, rho_bar, c_bar, lambda_)
  targets, _ = vtrace_definition(*inputs, rhos, valid, rho_bar, c_bar, lambda_)
  errors = corrected_definition(*inputs, valid, rhos, rho_bar, c_bar, lambda_, weighs_own=True)
  np.testing.assert_allclose(values[:-1] + errors, targets, rtol=0, atol=1e-12)
  with enable_x64(True):
    options = {'rho_bar': rho_bar, 'c_bar': c_bar, 'lambda_': lambda_}
    actual = estimates(values, rewards, discounts, step_type, rhos, **options)
    np.testing.assert_allclose(actual.advantages, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(actual.values, targets, rtol=0, atol=1e-12)


def test_a_ratio_weighs_earlier_advantages_and_not_its_own():
  rows = random_inputs(seed=3, batch_size=1)
  rows = (*rows[:2], np.ones_like(rows[2]), np.full_like(rows[3], MID))
  rhos = np.ones_like(rows[1][:-1])
  before = estimates(*rows, rhos, lambda_=0.9).advantages[:, 0]
  rhos[5] = 0.25
  after = estimates(*rows, rhos, lambda_=0.9).advantages[:, 0]
  np.testing.assert_array_equal(before != after, np.arange(12) < 5)


# Rows: 0 FIRST, 1 MID, 2 LAST | 3 FIRST, 4 MID, 5 bootstraps. gamma 0.9, lambda 0.5.
STEP_TYPE = np.array([FIRST, MID, LAST, FIRST, MID, MID])
VALUES = np.array([1.0, 2.0, 8.0, 4.0, 6.0, 10.0])
REWARDS = np.array([0.0, 1.0, 3.0, 0.0, -1.0, 2.0])


def two_episodes(last_discount, values=VALUES, rewards=REWARDS, rhos=None):
  discounts = np.array([1.0, 1.0, last_discount, 1.0, 1.0, 1.0])
  columns = [np.float32(x)[:, None] for x in (values, rewards, discounts)]
  rhos = None if rhos is None else np.float32(rhos)[:, None]
  found = estimates(*columns, STEP_TYPE[:, None], rhos, lambda_=0.5)
  return found.values[:, 0], found.advantages[:, 0]


# delta_4 = 2 + 9 - 6 = 5: the end of the unroll bootstraps. delta_3 = -1 + 5.4 - 4 = 0.4.
SECOND = [0.4 + 0.45 * 5, 5.0]


def test_termination_bootstraps_nothing():
  values, advantages = two_episodes(last_discount=0.0)
  # delta_1 = 3 - 2, delta_0 = 1 + 1.8 - 1.
  np.testing.assert_allclose(advantages, [1.8 + 0.45 * 1, 1.0, 0.0, *SECOND], rtol=1e-6)
  np.testing.assert_allclose(values, VALUES[:-1] + advantages, rtol=1e-6)


def test_truncation_bootstraps_from_the_value_of_its_last_row():
  values, advantages = two_episodes(last_discount=1.0)
  # delta_1 = 3 + 7.2 - 2.
  np.testing.assert_allclose(advantages, [1.8 + 0.45 * 8.2, 8.2, 0.0, *SECOND], rtol=1e-6)
  np.testing.assert_allclose(values, VALUES[:-1] + advantages, rtol=1e-6)


@pytest.mark.parametrize('last_discount', [0.0, 1.0])
def test_nothing_flows_back_from_the_next_episode(last_discount):
  expected = two_episodes(last_discount)
  changed = two_episodes(
    last_discount,
    values=[1.0, 2.0, 8.0, -90.0, 20.0, 30.0],
    rewards=[0.0, 1.0, 3.0, np.nan, 50.0, -70.0],
    rhos=[1.0, 1.0, np.inf, 0.1, 5.0],
  )
  for before, after in zip(expected, changed, strict=True):
    np.testing.assert_array_equal(before[:3], after[:3])
    assert np.all(before[3:] != after[3:])


def test_gradients_stop_at_the_targets():
  rows = random_inputs(seed=4)
  rhos = np.full_like(rows[1][:-1], 0.8)

  def total(values, rhos):
    return sum(jnp.sum(x) for x in estimates(values, *rows[1:], rhos, lambda_=0.9))

  for gradient in jax.grad(total, argnums=(0, 1))(jnp.asarray(rows[0]), jnp.asarray(rhos)):
    assert not np.any(gradient)


def test_ratios_beyond_float32_leave_everything_finite():
  rows = random_inputs(seed=5)
  for rho in (np.inf, 0.0):
    found = estimates(*rows, np.full_like(rows[1][:-1], rho), lambda_=0.95)
    assert np.isfinite(found.advantages).all() and np.isfinite(found.values).all()
