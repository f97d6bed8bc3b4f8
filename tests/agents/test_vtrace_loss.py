"""The V-trace loss: literal numbers, masks, reductions, gradients."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.actor_critic.distributions import Categorical
from agents.actor_critic.head import PolicyValue
from agents.types import FIRST, LAST, MID, Timestep
from agents.vtrace import loss as losses
from agents.vtrace.config import VTraceConfig

CONFIG = VTraceConfig(discount=0.5, baseline_cost=0.5, entropy_cost=0.1)
STEP_TYPES = [FIRST, MID, LAST, FIRST, MID, MID]
VALUES = [1.0, 2.0, 8.0, 4.0, 6.0, 10.0]
REWARDS = [0.0, 1.0, 3.0, 0.0, -1.0, 2.0]
DISCOUNTS = [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]
ACTIONS = [0, 1, 1, 0, 0, 1]
# Two actions; pi(0) is 1/2 in every row but row 1, where it is 1/5.
PROBABILITIES = [[0.5, 0.5], [0.2, 0.8], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]


@functools.partial(jax.jit, static_argnums=0)
def vtrace_loss(config, *inputs):
  return losses.vtrace_loss(config, Categorical(2), *inputs)


def column(x, dtype=jnp.float32):
  return jnp.asarray(x, dtype)[:, None]


def two_episodes():
  """One environment, rows: FIRST, MID, LAST (termination), FIRST, MID, MID."""
  logits = jnp.log(column(PROBABILITIES))
  timestep = Timestep(column(STEP_TYPES, jnp.uint8), column(REWARDS), column(DISCOUNTS), None)
  return PolicyValue(logits, column(VALUES)), logits, column(ACTIONS, jnp.int32), timestep


def test_literal_two_episodes():
  loss, metrics = vtrace_loss(CONFIG, *two_episodes())
  # Advantages 1.5, 1, -, -1.5, 1 on policy; targets 2.5, 3, -, 2.5, 7 against V 1, 2, -, 4, 6.
  log_pi = np.log([0.5, 0.8, 0.5, 0.5])
  policy_loss = -np.mean(np.array([1.5, 1.0, -1.5, 1.0]) * log_pi)
  baseline_loss = np.mean(0.5 * np.array([1.5, 1.0, -1.5, 1.0]) ** 2)
  entropy = np.mean([np.log(2), -0.2 * np.log(0.2) - 0.8 * np.log(0.8), np.log(2), np.log(2)])
  np.testing.assert_allclose(metrics['policy_loss'], policy_loss, rtol=1e-6)
  np.testing.assert_allclose(metrics['baseline_loss'], baseline_loss, rtol=1e-6)
  np.testing.assert_allclose(metrics['entropy'], entropy, rtol=1e-6)
  np.testing.assert_allclose(loss, policy_loss + 0.5 * baseline_loss - 0.1 * entropy, rtol=1e-6)
  np.testing.assert_allclose(metrics['rho'], 1.0, rtol=1e-6)
  np.testing.assert_allclose(metrics['value'], (1 + 2 + 4 + 6) / 4)


def test_importance_weights():
  output, _, action, timestep = two_episodes()
  # mu(1) was 0.4 where pi(1) is 0.8 and 1 where it was taken with 0.5.
  behaviour = jnp.log(column([[0.5, 0.5], [0.6, 0.4], *PROBABILITIES[2:4], [1.0, 0.0], [0.5, 0.5]]))
  _, metrics = vtrace_loss(CONFIG, output, behaviour, action, timestep)
  np.testing.assert_allclose(metrics['rho'], (1 + 2 + 1 + 0.5) / 4, rtol=1e-6)
  np.testing.assert_allclose(metrics['rho_clipped'], 0.25)
  # rho_4 = 1/2: delta_4 = 1/2, v_4 = 6.5, v_3 = -1 + 3.25; rho_1 = 2 is clipped to 1.
  errors = np.array([1.5, 1.0, -1.75, 0.5])
  np.testing.assert_allclose(metrics['baseline_loss'], np.mean(0.5 * errors**2), rtol=1e-6)


@functools.partial(jax.jit, static_argnums=0)
def loss_and_gradient(config, output, behaviour, action, timestep):
  def loss_fn(output, behaviour):
    return vtrace_loss(config, output, behaviour, action, timestep)

  (loss, metrics), gradient = jax.value_and_grad(loss_fn, (0, 1), has_aux=True)(output, behaviour)
  return loss, metrics, gradient


def test_masked_rows_change_neither_loss_nor_gradient():
  output, behaviour, action, timestep = two_episodes()
  expected = loss_and_gradient(CONFIG, output, behaviour, action, timestep)
  last, bootstrap = 2, 5
  changed = loss_and_gradient(
    CONFIG,
    PolicyValue(
      # The termination at row 2 bootstraps nothing, so its value is free too.
      output.logits.at[jnp.array([last, bootstrap])].set(7.0 * jnp.arange(2)),
      output.value.at[last].set(-1e3),
    ),
    behaviour.at[jnp.array([last, bootstrap])].set(-9.0 * jnp.arange(2)),
    action.at[jnp.array([last, bootstrap])].set(0),
    timestep._replace(reward=timestep.reward.at[last + 1].set(np.nan)),
  )
  jax.tree.map(np.testing.assert_array_equal, changed, expected)
  logits_gradient, value_gradient = expected[2][0]
  used = np.array([True, True, False, True, True, False])
  np.testing.assert_array_equal(np.any(logits_gradient[:, 0], axis=-1), used)
  np.testing.assert_array_equal(np.any(value_gradient, axis=-1), used)
  assert not np.any(expected[2][1])


def test_truncation_uses_the_value_of_the_last_row_without_gradient():
  output, behaviour, action, timestep = two_episodes()
  timestep = timestep._replace(discount=jnp.ones_like(timestep.discount))
  _, metrics, gradient = loss_and_gradient(CONFIG, output, behaviour, action, timestep)
  errors = np.array([3.5, 5.0, -1.5, 1.0])  # Targets 4.5, 7, -, 2.5, 7.
  np.testing.assert_allclose(metrics['baseline_loss'], np.mean(0.5 * errors**2), rtol=1e-6)
  expected = -0.5 * np.array([3.5, 5.0, 0.0, -1.5, 1.0, 0.0]) / 4
  np.testing.assert_allclose(gradient[0].value[:, 0], expected, rtol=1e-6)


def test_policy_gradient_is_advantage_times_score():
  inputs = two_episodes()
  config = dataclasses.replace(CONFIG, baseline_cost=0.0, entropy_cost=0.0)
  gradient = loss_and_gradient(config, *inputs)[2][0].logits[:, 0]
  advantages = np.array([1.5, 1.0, 0.0, -1.5, 1.0, 0.0])
  score = np.eye(2)[ACTIONS] - np.array(PROBABILITIES)
  np.testing.assert_allclose(gradient, -advantages[:, None] * score / 4, atol=1e-6)


def test_mean_counts_transitions_over_the_whole_batch_and_sum_does_not_divide():
  one = two_episodes()
  other = two_episodes()
  other = (
    *other[:3],
    other[3]._replace(step_type=column([FIRST, MID, MID, MID, MID, MID], jnp.uint8)),
  )
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), one, other)
  summed = dataclasses.replace(CONFIG, loss_reduction='sum')
  sums = [vtrace_loss(summed, *x)[0] for x in (one, other, both)]
  np.testing.assert_allclose(sums[2], sums[0] + sums[1], rtol=1e-6)
  np.testing.assert_allclose(vtrace_loss(CONFIG, *both)[0], sums[2] / (4 + 5), rtol=1e-6)


def test_a_batch_of_only_last_rows_has_no_loss():
  output, behaviour, action, timestep = two_episodes()
  timestep = timestep._replace(step_type=jnp.full_like(timestep.step_type, LAST))
  loss, metrics, gradient = loss_and_gradient(CONFIG, output, behaviour, action, timestep)
  assert loss == 0.0
  assert all(x == 0.0 for x in metrics.values())
  assert not any(np.any(x) for x in jax.tree.leaves(gradient))


def test_a_ratio_beyond_float32_leaves_loss_and_metrics_finite():
  """log(pi/mu) is 100 in one row, whose weight is clipped to 1."""
  output, behaviour, action, timestep = two_episodes()
  far = behaviour.at[1, 0].set(jnp.asarray([100.0, 0.0]))
  loss, metrics, gradient = loss_and_gradient(CONFIG, output, far, action, timestep)
  near = loss_and_gradient(CONFIG, output, behaviour.at[1, 0].set(-1.0), action, timestep)
  np.testing.assert_allclose(loss, near[0], rtol=1e-6)
  assert metrics['rho'] > 1e5
  assert all(np.isfinite(x).all() for x in [*metrics.values(), *jax.tree.leaves(gradient)])


def test_rewards_are_clipped_only_when_asked():
  inputs = two_episodes()
  clipped = two_episodes()
  clipped = (*clipped[:3], clipped[3]._replace(reward=column([0.0, 1.0, 1.0, 0.0, -1.0, 1.0])))
  config = dataclasses.replace(CONFIG, max_abs_reward=1.0)
  assert vtrace_loss(config, *inputs)[0] == vtrace_loss(CONFIG, *clipped)[0]
  assert vtrace_loss(config, *inputs)[0] != vtrace_loss(CONFIG, *inputs)[0]


@pytest.mark.parametrize('name', ['loss', 'rho', 'entropy', 'behaviour_kl'])
def test_metrics_are_float32_scalars(name):
  metric = vtrace_loss(CONFIG, *two_episodes())[1][name]
  assert metric.shape == () and metric.dtype == jnp.float32
