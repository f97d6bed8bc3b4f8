"""The R2D2 loss, priorities and importance weights: literal numbers, masks, gradients."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.priorities import importance_weights, unroll_priorities
from agents.r2d2 import loss as losses
from agents.r2d2.config import R2D2Config
from agents.types import FIRST, LAST, MID, Timestep
from tests.agents import r2d2_definition
from tests.agents.delta_q import delta_q
from tests.agents.recording import random_rows

CONFIG = R2D2Config(discount=0.9, n_step=3)


r2d2_loss = jax.jit(losses.r2d2_loss, static_argnums=0)


def column(x, dtype=jnp.float32):
  return jnp.asarray(x, dtype)[:, None]


def test_literal_terminated_episode():
  # With epsilon 0, h(8) = 2 and h^-1(2) = 8.
  config = dataclasses.replace(CONFIG, discount=0.5, n_step=1, rescale_epsilon=0.0)
  step_type = column([FIRST, MID, LAST, FIRST], jnp.uint8)
  timestep = Timestep(step_type, column([0.0, 4.0, 8.0, 0.0]), column([1.0, 1.0, 0.0, 1.0]), None)
  q_online = column([[1.5, 0.0], [0.0, 0.5], [7.0, 7.0], [7.0, 7.0]])
  q_target = column([[7.0, 7.0], [9.0, 2.0], [7.0, 7.0], [7.0, 7.0]])
  action = column([0, 0, 1, 1], jnp.int32)
  pair = jax.tree.map(
    lambda x: jnp.concatenate([x, x], axis=1), (q_online, q_target, action, timestep)
  )
  # Targets h(4 + 8/2) = 2 and h(8) = 2, errors 0.5 and 2; the LAST row has none.
  loss, (priorities, metrics) = r2d2_loss(config, *pair, jnp.float32([1.0, 0.5]))
  np.testing.assert_allclose(loss, 0.5 * (0.25 + 4.0) * (1.0 + 0.5) / 2, rtol=1e-6)
  np.testing.assert_allclose(priorities, 0.9 * 2.0 + 0.1 * 1.25, rtol=1e-6)
  expected = {
    **{'loss': loss, 'td_error': 1.25, 'q_value': 0.75, 'target_value': 2.0},
    **{'priority_mean': 1.925, 'priority_max': 1.925},
    **{'importance_weight_mean': 0.75, 'importance_weight_min': 0.5},
  }
  assert metrics.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(metrics[name], value, rtol=1e-6, err_msg=name)


def test_priorities_are_over_valid_transitions_and_floored():
  errors = jnp.float32([[1.0, 0.0, 5.0], [-3.0, 0.0, 5.0], [9.0, 0.0, 5.0]])
  valid = jnp.array([[True, True, False], [True, True, False], [False, True, False]])
  priorities = unroll_priorities(errors, valid, eta=0.75, floor=0.01)
  np.testing.assert_allclose(priorities, [0.75 * 3 + 0.25 * 2, 0.01, 0.01], rtol=1e-6)


def test_importance_weights_are_over_the_largest_of_the_batch():
  probabilities = jnp.float32([0.5, 0.25, 0.125])
  np.testing.assert_allclose(importance_weights(probabilities, 1.0, 3), [0.25, 0.5, 1.0], rtol=1e-6)
  expected = [0.25**0.6, 0.5**0.6, 1.0]
  np.testing.assert_allclose(importance_weights(probabilities, 0.6, 3), expected, rtol=1e-6)
  np.testing.assert_array_equal(importance_weights(probabilities, 0.0, 3), 1.0)
  np.testing.assert_array_equal(importance_weights(None, 0.6, 3), np.ones(3, np.float32))
  # The size of the replay, and how small its probabilities are, does not matter.
  tiny = importance_weights(1e-30 * probabilities, 0.6, 3)
  np.testing.assert_allclose(tiny, expected, rtol=1e-6)


def random_arguments(seed=0):
  rng = np.random.default_rng(seed)
  timestep = random_rows(9, 6, seed)
  q_online, q_target = jnp.asarray(rng.normal(size=(2, 9, 6, 4)), jnp.float32)
  action = jnp.asarray(rng.integers(0, 4, (9, 6)), jnp.int32)
  return q_online, q_target, action, timestep


@jax.jit
def loss_and_gradient(q_online, q_target, action, timestep):
  weights = jnp.linspace(0.1, 1.0, 6)

  def loss_fn(q_online, q_target):
    return r2d2_loss(CONFIG, q_online, q_target, action, timestep, weights)

  return jax.value_and_grad(loss_fn, (0, 1), has_aux=True)(q_online, q_target)


@pytest.mark.parametrize('seed', range(3))
def test_the_slow_definition_on_random_rows(seed):
  arguments = random_arguments(seed)
  probabilities = np.linspace(0.01, 0.2, 6)
  weights = importance_weights(jnp.float32(probabilities), 0.6, 6)
  loss, (priorities, metrics) = r2d2_loss(CONFIG, *arguments, weights)
  errors = r2d2_definition.td_errors(CONFIG, *arguments)
  np.testing.assert_allclose(loss, r2d2_definition.loss(errors, probabilities, 0.6), rtol=1e-5)
  np.testing.assert_allclose(priorities, r2d2_definition.priorities(CONFIG, errors), rtol=1e-5)
  flat = np.abs(np.concatenate(errors))
  np.testing.assert_allclose(metrics['td_error'], flat.mean(), rtol=1e-5)


def test_gradient_is_the_error_of_the_action_taken():
  q_online, q_target, action, timestep = random_arguments()
  _, (gradient, target_gradient) = loss_and_gradient(q_online, q_target, action, timestep)
  errors = r2d2_definition.td_errors(CONFIG, q_online, q_target, action, timestep)
  expected = np.zeros(gradient.shape)
  action = np.asarray(action)
  for b in range(6):
    rows = np.flatnonzero(timestep.step_type[:-1, b] != LAST)
    for t, error in zip(rows, errors[b], strict=True):
      expected[t, b, action[t, b]] = -np.linspace(0.1, 1.0, 6)[b] * error / 6
  np.testing.assert_allclose(gradient, expected, atol=1e-6)
  assert not np.any(target_gradient)


def test_masked_rows_have_no_effect():
  q_online, q_target, action, timestep = random_arguments()
  last = timestep.step_type == LAST
  after_last = jnp.concatenate([jnp.zeros((1, 6), bool), last[:-1]])
  terminated = last & (timestep.discount == 0)
  assert np.sum(terminated[1:-1]) > 2 and np.sum(last[1:-1] & ~terminated[1:-1]) > 1
  results = loss_and_gradient(q_online, q_target, action, timestep)
  changed = loss_and_gradient(
    jnp.where(terminated[..., None], 100.0, q_online),
    jnp.where(terminated[..., None], -100.0, q_target),
    jnp.where(last, 3 - action, action).at[-1].set(0),
    timestep._replace(
      reward=jnp.where(after_last, jnp.nan, timestep.reward),
      discount=jnp.where(after_last, jnp.nan, timestep.discount),
    ),
  )
  jax.tree.map(np.testing.assert_array_equal, changed, results)


def test_delta_q_literal():
  # Two rows, one environment, two actions; the largest Q of the unroll is 5, of the other -5.
  reference = jnp.float32([[[1.0, 2.0], [-5.0, -6.0]], [[5.0, 0.0], [-9.0, -7.0]]])
  replayed = reference + jnp.float32([[[3.0, 4.0], [0.0, 1.0]], [[0.0, 0.0], [-1.0, 0.0]]])
  np.testing.assert_allclose(delta_q(reference, replayed), [[1.0, 0.2], [0.0, 0.2]], rtol=1e-6)
