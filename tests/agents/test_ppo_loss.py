"""The loss of PPO: against plain loops over the paper's equations, masks, gradients, metrics."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.actor_critic.distributions import Categorical
from agents.actor_critic.head import PolicyValue
from agents.ppo import loss as losses
from agents.ppo.config import PPOConfig
from tests.agents.precision import enable_x64

CONFIG = PPOConfig(clip_ratio=0.2, baseline_cost=0.5, entropy_cost=0.1, normalize_advantages=False)
POLICY_ONLY = dataclasses.replace(CONFIG, baseline_cost=0.0, entropy_cost=0.0)
NUM_ACTIONS = 3


def ppo_loss(config, output, *inputs):
  return losses.ppo_loss(config, Categorical(NUM_ACTIONS), output, *inputs)


def random_inputs(seed=0, shape=(7, 5)):
  """Returns NumPy inputs: logits, values, actions, log mu, valid, old values, targets, advantages."""
  rng = np.random.default_rng(seed)
  logits, action = rng.normal(size=(*shape, NUM_ACTIONS)), rng.integers(0, NUM_ACTIONS, shape)
  log_pi = np.log(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True))
  chosen = np.take_along_axis(log_pi, action[..., None], -1)[..., 0]
  log_mu = chosen + 0.3 * rng.normal(size=shape)
  value, target, advantage = rng.normal(size=(3, *shape))
  old_value = value + 0.3 * rng.normal(size=shape)
  valid = rng.uniform(size=shape) < 0.7
  return logits, value, action, log_mu, valid, old_value, target, advantage


def definition(config, logits, value, action, log_mu, valid, old_value, target, advantage):
  """Equations (7) and (9) of Schulman et al. 2017, one transition at a time; also its metrics."""
  used = [i for i in np.ndindex(valid.shape) if valid[i]]
  mean = sum(advantage[i] for i in used) / len(used)
  std = (sum((advantage[i] - mean) ** 2 for i in used) / len(used)) ** 0.5
  sums = dict.fromkeys(('policy', 'baseline', 'entropy', 'kl', 'clipped'), 0.0)
  for i in used:
    pi = np.exp(logits[i]) / sum(np.exp(logits[i]))
    ratio = pi[action[i]] / np.exp(log_mu[i])
    a = (advantage[i] - mean) / std if config.normalize_advantages else advantage[i]
    low, high = 1 - config.clip_ratio, 1 + config.clip_ratio
    sums['policy'] -= min(ratio * a, min(max(ratio, low), high) * a)
    error = (value[i] - target[i]) ** 2
    if config.clip_value:
      step = min(max(value[i] - old_value[i], -config.clip_value), config.clip_value)
      error = max(error, (old_value[i] + step - target[i]) ** 2)
    sums['baseline'] += error / 2
    sums['entropy'] -= sum(p * np.log(p) for p in pi)
    sums['kl'] += ratio - 1 - np.log(ratio)
    sums['clipped'] += not low <= ratio <= high
  means = {name: value / len(used) for name, value in sums.items()}
  loss = means['policy'] + config.baseline_cost * means['baseline']
  return loss - config.entropy_cost * means['entropy'], means


@pytest.mark.parametrize('clip_value', [0.0, 0.2])
@pytest.mark.parametrize('normalize', [True, False])
def test_matches_the_definition(clip_value, normalize):
  config = dataclasses.replace(CONFIG, clip_value=clip_value, normalize_advantages=normalize)
  inputs = random_inputs()
  expected, means = definition(config, *inputs)
  assert 0.2 < means['clipped'] < 0.8
  with enable_x64(True):
    logits, value, *rest = map(jnp.asarray, inputs)
    loss, metrics = ppo_loss(config, PolicyValue(logits, value), *rest)
    assert loss.dtype == jnp.float64
    actual = [metrics[name] for name in ('policy_loss', 'baseline_loss', 'entropy', 'approx_kl')]
  np.testing.assert_allclose(loss, expected, rtol=0, atol=1e-7)  # The 1e-8 beside the deviation.
  literal = [means[name] for name in ('policy', 'baseline', 'entropy', 'kl')]
  np.testing.assert_allclose(actual, literal, rtol=0, atol=1e-7)
  np.testing.assert_allclose(metrics['clip_fraction'], means['clipped'], rtol=1e-6)
  np.testing.assert_allclose(metrics['entropy_loss'], -metrics['entropy'])
  np.testing.assert_allclose(metrics['loss'], loss)


def loss_and_gradient(config, inputs):
  """Returns the loss, the metrics, and the gradient of logits and values."""
  logits, value, action, log_mu, valid, *rest = inputs
  logits, value, log_mu, *rest = (np.asarray(x, np.float32) for x in (logits, value, log_mu, *rest))
  inputs = PolicyValue(logits, value), action, log_mu, valid, *rest
  (loss, metrics), gradient = _value_and_grad(config, *inputs)
  return loss, metrics, gradient


@functools.partial(jax.jit, static_argnums=0)
def _value_and_grad(config, output, *inputs):
  return jax.value_and_grad(lambda x: ppo_loss(config, x, *inputs), has_aux=True)(output)


@pytest.mark.slow
def test_masked_rows_change_neither_loss_nor_gradient_nor_metrics():
  config = dataclasses.replace(CONFIG, clip_value=0.2, normalize_advantages=True)
  inputs, other = random_inputs(), random_inputs(seed=1)
  valid = inputs[4]
  expected = loss_and_gradient(config, inputs)
  changed = [
    np.where(valid.reshape(valid.shape + (1,) * (x.ndim - 2)), x, 50 * y)
    for x, y in zip(inputs, other, strict=True)
  ]
  changed[2], changed[4] = np.where(valid, inputs[2], other[2]), valid
  actual = loss_and_gradient(config, changed)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), actual, expected)
  # Every valid value has a gradient, and every logit by its entropy.
  np.testing.assert_array_equal(np.any(expected[2].logits, axis=-1), valid)
  assert not np.any(expected[2].value[~valid]) and np.any(expected[2].value[valid])


def one_transition(ratio, advantage, value=0.0, old_value=0.0, target=0.0):
  """The inputs of one transition in which action 0, of probability 1/3, had 1 / (3 ratio)."""
  columns = [np.array([x]) for x in (value, 0, -np.log(3 * ratio), True, old_value, target)]
  return (np.zeros((1, NUM_ACTIONS)), *columns, np.array([advantage]))


@pytest.mark.slow
@pytest.mark.parametrize(
  ('ratio', 'advantage', 'loss', 'moves'),
  [
    (1.0, 2.0, -2.0, True),
    (1.1, 2.0, -2.2, True),
    (1.5, 2.0, -2.4, False),  # Likelier already, and better: no reason to go on.
    (0.5, 2.0, -1.0, True),
    (1.5, -2.0, 3.0, True),  # Likelier, but worse: back at any distance.
    (0.5, -2.0, 1.6, False),
    (0.9, -2.0, 1.8, True),
  ],
)
def test_the_clip_removes_gains_beyond_it_and_nothing_else(ratio, advantage, loss, moves):
  actual, _, gradient = loss_and_gradient(POLICY_ONLY, one_transition(ratio, advantage))
  np.testing.assert_allclose(actual, loss, rtol=1e-6)
  # d ratio / d logits = ratio (onehot - pi).
  score = np.array([2, -1, -1]) / 3
  expected = -advantage * ratio * score if moves else np.zeros(3)
  np.testing.assert_allclose(gradient.logits[0], expected, atol=1e-6)


@pytest.mark.parametrize(
  ('value', 'error', 'moves'),
  [
    (1.1, 1.9, True),  # Within 0.2 of the old value, 1, on the way to the target, 3.
    (1.5, 1.8, False),  # Beyond: as wrong as 1.2 would be, and no further.
    (0.5, 2.5, True),  # Away from the target: the error of the value itself.
    (9.0, 6.0, True),
  ],
)
def test_the_value_clip_removes_gains_beyond_it_and_nothing_else(value, error, moves):
  config = dataclasses.replace(CONFIG, clip_value=0.2, entropy_cost=0.0)
  inputs = one_transition(1.0, 0.0, value, old_value=1.0, target=3.0)
  loss, metrics, gradient = loss_and_gradient(config, inputs)
  np.testing.assert_allclose(metrics['baseline_loss'], 0.5 * error**2, rtol=1e-6)
  np.testing.assert_allclose(loss, 0.25 * error**2, rtol=1e-6)
  np.testing.assert_allclose(gradient.value[0], 0.5 * (value - 3.0) * moves, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('advantage', [1.0, -1.0])
@pytest.mark.parametrize('log_ratio', [-1e4, -100.0, 100.0, 1e4])
def test_ratios_beyond_float32_leave_loss_gradient_and_metrics_finite(log_ratio, advantage):
  for normalize in (True, False):
    config = dataclasses.replace(CONFIG, normalize_advantages=normalize)
    inputs = list(random_inputs())
    inputs[3] = inputs[3].copy()
    inputs[7] = inputs[7].copy()
    inputs[3][2, 2] -= log_ratio
    inputs[7][2, 2] = advantage
    for valid in (True, False):
      inputs[4][2, 2] = valid
      found = jax.tree.leaves(loss_and_gradient(config, inputs))
      assert all(np.isfinite(x).all() for x in found)


def test_advantages_are_normalised_over_valid_transitions():
  advantages = np.array([[3.0, 1e6], [-1.0, 5.0], [7.0, -1e6]])
  valid = np.array([[True, False], [True, True], [True, False]])
  actual = losses.normalized(jnp.asarray(advantages, jnp.float32), jnp.asarray(valid))
  used = advantages[valid]
  np.testing.assert_allclose(actual[valid], (used - used.mean()) / used.std(), rtol=1e-5)


@pytest.mark.parametrize('size', [10, 100, 1000])
@pytest.mark.parametrize('value', [0.1, 1.7, 33.3, -1000.1])
def test_equal_advantages_are_0_though_their_float32_mean_is_rounded(size, value):
  advantages = jnp.full(size, value, jnp.float32)
  actual = losses.normalized(advantages, jnp.ones(size, bool))
  np.testing.assert_allclose(actual, 0.0, atol=0.01)


def test_equal_advantages_and_a_batch_of_only_last_rows_stay_finite():
  config = dataclasses.replace(CONFIG, normalize_advantages=True)
  inputs = list(random_inputs())
  inputs[7] = np.full_like(inputs[7], 3.0)
  loss, metrics, gradient = loss_and_gradient(config, inputs)
  assert np.isfinite(loss) and all(np.isfinite(x).all() for x in gradient)
  assert abs(metrics['policy_loss']) < 1e-3
  inputs[4] = np.zeros_like(inputs[4])
  loss, metrics, gradient = loss_and_gradient(config, inputs)
  assert loss == 0.0 and not any(np.any(x) for x in [*metrics.values(), *gradient])


def test_explained_variance():
  target, valid = jnp.array([1.0, 3.0, 5.0, 99.0]), jnp.array([True, True, True, False])

  def explained(*values):
    return float(losses.explained_variance(jnp.array(values), target, valid))

  assert explained(1.0, 3.0, 5.0, 0.0) == 1.0
  assert explained(2.0, 2.0, 2.0, 0.0) == 0.0
  assert explained(11.0, 13.0, 15.0, 0.0) == 1.0  # A constant error does not vary.
  np.testing.assert_allclose(explained(5.0, 3.0, 1.0, 0.0), -3.0, rtol=1e-6)


def test_metrics_are_float32_scalars_without_gradient():
  metrics = loss_and_gradient(CONFIG, random_inputs())[1]
  assert all(x.shape == () and x.dtype == jnp.float32 for x in metrics.values())
