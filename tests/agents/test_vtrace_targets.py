"""V-trace targets against their definition, a reference implementation and hand-made episodes."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.vtrace.targets import vtrace
from tests.agents.precision import enable_x64
from tests.agents.subprocesses import run_python


def random_inputs(seed, num_steps=9, batch_size=5, terminations=True):
  rng = np.random.default_rng(seed)
  shape = (num_steps, batch_size)
  values = rng.normal(size=(num_steps + 1, batch_size))
  rewards = rng.normal(size=shape)
  discounts = rng.uniform(0.5, 1.0, size=shape)
  if terminations:
    discounts *= rng.uniform(size=shape) > 0.2
  rhos = np.exp(rng.normal(size=shape))
  valid = rng.uniform(size=shape) > 0.2 if terminations else np.ones(shape, bool)
  return values, rewards, discounts, rhos, valid


def definition(values, rewards, discounts, rhos, valid, rho_bar, c_bar, lambda_):
  """Equation (1) of IMPALA as the double sum that it is, one transition at a time."""
  num_steps, batch_size = rewards.shape
  targets = values.copy()
  for b, s in itertools.product(range(batch_size), range(num_steps)):
    for t in range(s, num_steps):
      weight = 1.0
      for i in range(s, t):
        weight *= discounts[i, b] * lambda_ * min(c_bar, rhos[i, b]) * valid[i, b]
      delta = rewards[t, b] + discounts[t, b] * values[t + 1, b] - values[t, b]
      targets[s, b] += weight * valid[t, b] * min(rho_bar, rhos[t, b]) * delta
  advantages = np.zeros_like(rewards)
  for b, s in itertools.product(range(batch_size), range(num_steps)):
    if valid[s, b]:
      q = rewards[s, b] + discounts[s, b] * targets[s + 1, b]
      advantages[s, b] = min(rho_bar, rhos[s, b]) * (q - values[s, b])
  return targets[:-1], advantages


@pytest.mark.parametrize(
  ('rho_bar', 'c_bar', 'lambda_'), [(1.0, 1.0, 1.0), (2.0, 1.5, 0.9), (np.inf, 0.7, 0.5), (1, 1, 0)]
)
def test_matches_the_definition(rho_bar, c_bar, lambda_):
  inputs = random_inputs(seed=0)
  expected = definition(*inputs, rho_bar, c_bar, lambda_)
  with enable_x64(True):
    actual = vtrace(*map(jnp.asarray, inputs), rho_bar=rho_bar, c_bar=c_bar, lambda_=lambda_)
    assert actual.values.dtype == jnp.float64
    np.testing.assert_allclose(actual.values, expected[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(actual.advantages, expected[1], rtol=0, atol=1e-10)


@pytest.mark.nightly
def test_matches_rlax():
  # rlax cannot be imported where TensorFlow has been, as by the tests of replay.
  run_python('-m', 'tests.agents.rlax_comparison', JAX_PLATFORMS='cpu')


def test_on_policy_targets_are_n_step_returns():
  values, rewards, discounts, _, valid = random_inputs(seed=2, terminations=False)
  returns = [values[-1]]
  for r, d in zip(rewards[::-1], discounts[::-1], strict=True):
    returns.append(r + d * returns[-1])
  returns = np.stack(returns[:0:-1])
  inputs = [
    jnp.asarray(x, jnp.float32) for x in (values, rewards, discounts, np.ones_like(rewards))
  ]
  actual = vtrace(*inputs, jnp.asarray(valid))
  np.testing.assert_allclose(actual.values, returns, rtol=0, atol=2e-6)
  np.testing.assert_allclose(actual.advantages, returns - values[:-1], rtol=0, atol=2e-6)


def test_gradients_stop_at_the_targets():
  inputs = [jnp.asarray(x) for x in random_inputs(seed=3)]
  values, rewards, discounts, rhos, valid = inputs

  def total(values, rhos):
    return sum(jnp.sum(x) for x in vtrace(values, rewards, discounts, rhos, valid))

  for gradient in jax.grad(total, argnums=(0, 1))(values, rhos):
    assert not np.any(gradient)


def fixed_point(pi, mu, rewards, gamma, rho_bar, c_bar, num_steps=3):
  """Iterates the expected V-trace operator in a 2-state MDP where action a leads to state a."""
  starts = [0, 1]
  paths = list(itertools.product(starts, *[[0, 1]] * num_steps))  # x_0, then a_t = x_{t+1}.
  states = np.array(paths).T  # [T+1, paths]
  x, a = states[:-1], states[1:]
  probability = np.prod(mu[x, a], axis=0)

  with enable_x64(True):
    run = jax.jit(
      lambda v: vtrace(
        v[states],
        jnp.asarray(rewards[x, a]),
        jnp.full(x.shape, gamma),
        jnp.asarray(pi[x, a] / mu[x, a]),
        jnp.ones(x.shape, bool),
        rho_bar=rho_bar,
        c_bar=c_bar,
      ).values[0]
    )
    v = jnp.zeros(2)
    for _ in range(400):
      targets = probability * run(v)
      v = jnp.stack([jnp.sum(jnp.where(states[0] == s, targets, 0)) for s in starts])
    return np.asarray(v)


def test_rho_bar_decides_the_fixed_point_and_c_bar_does_not():
  pi = np.array([[0.9, 0.1], [0.3, 0.7]])
  mu = np.array([[0.4, 0.6], [0.5, 0.5]])
  rewards, gamma = np.array([[1.0, -2.0], [0.5, 3.0]]), 0.8

  def value_of(policy):
    return np.linalg.solve(np.eye(2) - gamma * policy, np.sum(policy * rewards, axis=1))

  clipped = np.minimum(mu, pi)  # Equation (2) with rho_bar = 1.
  clipped /= clipped.sum(axis=1, keepdims=True)
  assert np.abs(value_of(clipped) - value_of(pi)).max() > 0.1
  for c_bar in (0.2, 1.0):
    actual = fixed_point(pi, mu, rewards, gamma, rho_bar=1.0, c_bar=c_bar)
    np.testing.assert_allclose(actual, value_of(clipped), atol=1e-8)
  actual = fixed_point(pi, mu, rewards, gamma, rho_bar=10.0, c_bar=1.0)
  np.testing.assert_allclose(actual, value_of(pi), atol=1e-8)


# Rows: 0 FIRST, 1 MID, 2 LAST | 3 FIRST, 4 MID, 5 bootstraps. gamma 0.5, rho 1.
# Rewards arrive with rows 1, 2 and 4, 5; transition 2 -> 3 is none.
VALUES = np.array([1.0, 2.0, 8.0, 4.0, 6.0, 10.0])
REWARDS = np.array([1.0, 3.0, 0.0, -1.0, 2.0])
VALID = np.array([True, True, False, True, True])


def two_episodes(last_discount, rewards=REWARDS, values=VALUES, rhos=None):
  discounts = 0.5 * np.array([1.0, last_discount, 1.0, 1.0, 1.0])
  rhos = np.ones(5) if rhos is None else rhos
  columns = [jnp.asarray(x[:, None], jnp.float32) for x in (values, rewards, discounts, rhos)]
  targets = vtrace(*columns, jnp.asarray(VALID[:, None]))
  return targets.values[:, 0], targets.advantages[:, 0]


def test_termination_bootstraps_nothing():
  values, advantages = two_episodes(last_discount=0.0)
  # v_4 = 2 + 10/2, v_3 = -1 + 7/2, v_2 = V(LAST), v_1 = 3, v_0 = 1 + 3/2.
  np.testing.assert_allclose(values, [2.5, 3.0, 8.0, 2.5, 7.0])
  np.testing.assert_allclose(advantages, [1.5, 1.0, 0.0, -1.5, 1.0])


def test_truncation_bootstraps_from_the_last_observation():
  values, advantages = two_episodes(last_discount=1.0)
  # v_1 = 3 + 8/2, v_0 = 1 + 7/2; the second episode is as before.
  np.testing.assert_allclose(values, [4.5, 7.0, 8.0, 2.5, 7.0])
  np.testing.assert_allclose(advantages, [3.5, 5.0, 0.0, -1.5, 1.0])


@pytest.mark.parametrize('last_discount', [0.0, 1.0])
def test_nothing_flows_back_from_the_next_episode(last_discount):
  values, advantages = two_episodes(last_discount)
  changed = two_episodes(
    last_discount,
    rewards=np.array([1.0, 3.0, np.nan, 50.0, -70.0]),
    values=np.array([1.0, 2.0, 8.0, -90.0, 20.0, 30.0]),
    rhos=np.array([1.0, 1.0, np.inf, 0.1, 5.0]),
  )
  np.testing.assert_array_equal(changed[0][:3], values[:3])
  np.testing.assert_array_equal(changed[1][:3], advantages[:3])
