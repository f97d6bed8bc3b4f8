"""Policy distributions: densities and entropies against integrals, actions within their bounds."""

from __future__ import annotations

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from agents.actor_critic import squashed_entropy
from agents.actor_critic.choice import make_distribution
from agents.actor_critic.distributions import (
  MIN_STD,
  Categorical,
  ClippedGaussian,
  SquashedGaussian,
)
from agents.actor_critic.multi_categorical import MultiCategorical
from tests.agents.recording import CONTINUOUS_ACTION_SPEC, HIGH, LOW

SQUASHED = SquashedGaussian(CONTINUOUS_ACTION_SPEC)
CLIPPED = ClippedGaussian(CONTINUOUS_ACTION_SPEC)
MEAN, STD = np.array([0.3, -1.0, 2.0]), np.array([0.5, 1.0, 0.1])


def logits_of(mean, std):
  """The parameters that give the squashed Gaussian these means and deviations, `[A]` each."""
  raw = np.log(np.expm1(np.asarray(std) - MIN_STD))
  return jnp.asarray(np.concatenate([mean, raw]), jnp.float32)


def clipped_logits_of(mean, std):
  """The parameters that give the clipped Gaussian these means and deviations, `[A]` each."""
  return jnp.asarray(np.concatenate([mean, np.log(std)]), jnp.float32)


GAUSSIANS = pytest.mark.parametrize(
  'gaussian, parameters', [(SQUASHED, logits_of), (CLIPPED, clipped_logits_of)]
)


def test_a_label_has_its_probability_and_the_entropy_is_their_mean():
  logits = np.array([[0.5, -1.0, 2.0], [100.0, 0.0, -100.0]])
  probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  categorical = Categorical(3)
  for label in range(3):
    actual = categorical.log_prob(jnp.float32(logits), jnp.full(2, label))
    np.testing.assert_allclose(actual, np.log(probabilities[:, label]), rtol=1e-5, atol=1e-6)
  expected = [stats.entropy(p) for p in probabilities]
  np.testing.assert_allclose(categorical.entropy(jnp.float32(logits)), expected, atol=1e-6)
  assert categorical.mode(jnp.float32(logits)).tolist() == [2, 0]


def test_several_labels_have_the_product_of_their_probabilities_and_the_sum_of_their_entropies():
  logits = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
  several, parts = MultiCategorical((2, 4, 1)), np.split(logits, [2, 6], axis=-1)
  assert several.num_logits == 7
  draw = jnp.array([[1, 3, 0], [0, 0, 0], [1, 1, 0], [0, 2, 0]])
  singles = [Categorical(part.shape[-1]) for part in parts]
  expected = sum(
    d.log_prob(x, draw[:, k]) for k, (d, x) in enumerate(zip(singles, parts, strict=True))
  )
  np.testing.assert_allclose(several.log_prob(logits, draw), expected, rtol=1e-5)
  expected = sum(d.entropy(x) for d, x in zip(singles, parts, strict=True))
  np.testing.assert_allclose(several.entropy(logits), expected, rtol=1e-5)
  modes = np.stack([x.argmax(-1) for x in parts], -1)
  np.testing.assert_array_equal(several.mode(logits), modes)
  keys = jax.random.split(jax.random.key(0), 4000)
  draws = np.asarray(jax.vmap(several.sample, in_axes=(0, None))(keys, logits[0]))
  assert draws.dtype == np.int32 and draws.shape == (4000, 3)
  for k, part in enumerate(parts):
    expected = np.exp(part[0]) / np.exp(part[0]).sum()
    found = np.bincount(draws[:, k], minlength=len(expected)) / 4000
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_several_labels_exist_also_where_the_logits_are_constants_of_a_compiled_function():
  logits = jnp.asarray(np.random.default_rng(0).normal(size=(64, 6)), jnp.float32)
  keys, several = jax.random.split(jax.random.key(0), 64), MultiCategorical((3, 1, 2))
  draws = jax.jit(lambda: jax.vmap(several.sample)(keys, logits))()
  assert (draws < np.array([3, 1, 2])).all()
  np.testing.assert_array_equal(draws, jax.jit(jax.vmap(several.sample))(keys, logits))


@GAUSSIANS
def test_the_density_of_a_draw_is_that_of_the_gaussian(gaussian, parameters):
  draw = np.array([0.1, 0.5, 2.2])
  actual = gaussian.log_prob(parameters(MEAN, STD), jnp.float32(draw))
  np.testing.assert_allclose(actual, stats.norm.logpdf(draw, MEAN, STD).sum(), rtol=1e-5)


@GAUSSIANS
def test_draws_have_that_density(gaussian, parameters):
  keys = jax.random.split(jax.random.key(0), 2000)
  logits = parameters(MEAN, STD)
  draws = np.asarray(jax.vmap(gaussian.sample, (0, None))(keys, logits), np.float64)
  for i in range(3):
    assert stats.kstest(draws[:, i], stats.norm(MEAN[i], STD[i]).cdf).pvalue > 0.01
  np.testing.assert_allclose(gaussian.mode(logits), MEAN, rtol=1e-6)


def test_the_entropy_of_a_clipped_gaussian_is_that_of_its_draw():
  logits = clipped_logits_of(MEAN, STD)
  expected = stats.norm.entropy(MEAN, STD).sum()
  np.testing.assert_allclose(
    CLIPPED.entropy(jnp.tile(logits, (4, 1))), np.full(4, expected), rtol=1e-6
  )
  gradient = jax.grad(CLIPPED.entropy)(logits)
  np.testing.assert_allclose(gradient, [0, 0, 0, 1, 1, 1])


def test_a_clipped_gaussian_moves_for_draws_beyond_the_bounds():
  logits, beyond = clipped_logits_of(MEAN, STD), jnp.array([9.0, -9.0, 9.0])
  gradient = jax.grad(CLIPPED.log_prob)(logits, beyond)
  np.testing.assert_allclose(gradient[:3], (beyond - MEAN) / STD**2, rtol=1e-4)


def test_a_clipped_gaussian_acts_on_its_draw_between_the_bounds():
  actions = CLIPPED.action(jnp.array([[-0.5, 0.0, 1.0], [-3.0, 1.5, 0.5]]))
  np.testing.assert_allclose(actions, [[-1.0, 0.05, 7.0], [-2.0, 0.1, 6.5]], rtol=1e-6)
  assert actions.dtype == jnp.float32
  assert (CLIPPED.num_free, SQUASHED.num_free, CLIPPED.num_logits) == (3, 0, 6)


def log_slope(u):
  return 2 * (np.log(2) - np.abs(u) - np.log1p(np.exp(-2 * np.abs(u))))


def expectation(function, mean, std):
  """The mean of a function of u, Gaussian, by adaptive quadrature in double precision."""

  def integrand(u):
    return stats.norm.pdf(u, mean, std) * function(u)

  bounds = mean - 12 * std, mean + 12 * std
  points = [p for p in (-8, -1, 0, 1, 8) if bounds[0] < p < bounds[1]]
  return integrate.quad(integrand, *bounds, limit=400, points=points or None)[0]


def entropy_of_tanh(mean, std):
  """The entropy of tanh(u), u Gaussian."""
  return stats.norm.entropy(mean, std) + expectation(log_slope, mean, std)


ENTROPY = jax.jit(jax.value_and_grad(squashed_entropy.entropy, argnums=(0, 1)))
STDS = [0.05, 0.3, 0.99, 1.0, 1.01, 1.5, 3.0, 5.0, 10.0, 20.0]


@pytest.mark.slow
@pytest.mark.parametrize('std', STDS)
@pytest.mark.parametrize('mean', [0.0, 0.7, -4.0, 12.0])
def test_entropy_and_its_gradient_are_those_of_the_action(mean, std):
  mean_and_std = jnp.float32(mean), jnp.float32(std)
  entropy, gradient = ENTROPY(*mean_and_std)
  np.testing.assert_allclose(entropy, entropy_of_tanh(mean, std), atol=1e-4, rtol=1e-5)
  assert entropy < np.log(2)
  # d/dmean E[f(mean + std z)] = E[f'], d/dstd = E[f' z]; f' = -2 tanh.
  by_mean = expectation(lambda u: -2 * np.tanh(u), mean, std)
  by_std = 1 / std + expectation(lambda u: -2 * np.tanh(u) * (u - mean) / std, mean, std)
  np.testing.assert_allclose(gradient, [by_mean, by_std], atol=2e-4, rtol=1e-3)


def test_the_distribution_takes_its_entropy_from_there():
  gaussian = SquashedGaussian(dm_env.specs.BoundedArray((1,), np.float32, -1, 1))
  np.testing.assert_allclose(
    gaussian.entropy(logits_of([0.7], [5.0])), entropy_of_tanh(0.7, 5.0), atol=1e-4
  )


def test_entropies_far_out_are_finite_and_so_are_their_gradients():
  for mean in (0.0, 100.0, -1000.0):
    for std in (MIN_STD, 1.0, 1000.0):
      found = ENTROPY(jnp.float32(mean), jnp.float32(std))
      assert np.isfinite(jax.tree.leaves(found)).all()


def test_entropies_and_densities_of_dimensions_add_up():
  parts = sum(entropy_of_tanh(m, s) for m, s in zip(MEAN, STD, strict=True))
  batch = jnp.broadcast_to(logits_of(MEAN, STD), (4, 5, 6))
  entropy = SQUASHED.entropy(batch)
  np.testing.assert_allclose(entropy, np.full((4, 5), parts), atol=1e-4)
  assert SQUASHED.log_prob(batch, jnp.zeros((4, 5, 3))).shape == (4, 5)


@pytest.mark.parametrize('gaussian', [SQUASHED, CLIPPED])
def test_actions_keep_to_their_bounds_and_fill_them(gaussian):
  draws = jnp.concatenate([jnp.linspace(-30, 30, 601), jnp.array([-1e9, 1e9])])
  actions = np.asarray(gaussian.action(jnp.tile(draws[:, None], 3)))
  assert actions.dtype == np.float32 and actions.shape == (603, 3)
  assert (actions >= LOW).all() and (actions <= HIGH).all()
  np.testing.assert_array_equal([actions.min(0), actions.max(0)], [LOW, HIGH])
  np.testing.assert_allclose(gaussian.action(jnp.zeros(3)), (LOW + HIGH) / 2, rtol=1e-6)


@pytest.mark.parametrize('policy_std', ['state', 'free'])
@pytest.mark.parametrize('shape', [(), (2, 2)])
def test_actions_of_any_shape(shape, policy_std):
  distribution = make_distribution(dm_env.specs.BoundedArray(shape, np.float32, -1, 1), policy_std)
  size = int(np.prod(shape))
  draw = distribution.sample(jax.random.key(0), jnp.zeros(2 * size))
  assert distribution.num_logits == 2 * size and draw.shape == (size,)
  assert distribution.action(jnp.stack([draw] * 3)).shape == (3, *shape)


@pytest.mark.parametrize(
  'spec',
  [
    dm_env.specs.Array((2,), np.float32),
    dm_env.specs.BoundedArray((2,), np.float32, -np.inf, np.inf),
    dm_env.specs.BoundedArray((2, 2), np.int32, 0, 3),
  ],
)
def test_other_actions_are_rejected(spec):
  with pytest.raises(ValueError, match='which no agent takes: use a DiscreteArray'):
    make_distribution(spec)


def test_the_density_of_an_action_is_the_slope_of_its_distribution_and_integrates_to_one():
  gaussian = SquashedGaussian(dm_env.specs.BoundedArray((1,), np.float32, 3, 9))
  logits = logits_of([0.4], [0.7])

  def density(action):
    draw = jnp.arctanh(jnp.float32([action]))
    return float(jnp.exp(gaussian.log_prob_of_action(logits, draw)))

  def distribution(action):
    return stats.norm.cdf(np.arctanh(action), 0.4, 0.7)

  for action in (-0.9, 0.0, 0.6, 0.99):
    slope = (distribution(action + 1e-5) - distribution(action - 1e-5)) / 2e-5
    np.testing.assert_allclose(density(action), slope, rtol=1e-4)
  whole, _ = integrate.quad(density, -0.999999, 0.999999, limit=100, epsabs=1e-3)
  assert whole == pytest.approx(1.0, abs=2e-3)


def test_the_density_of_an_action_far_out_is_finite_and_so_is_its_gradient():
  draw = jnp.float32([30.0, -30.0, 0.0])
  value, gradient = jax.value_and_grad(SQUASHED.log_prob_of_action)(logits_of(MEAN, STD), draw)
  assert np.isfinite(value) and np.isfinite(gradient).all()
  # log dtanh(u)/du is 2 log 2 - 2 |u| there.
  expected = SQUASHED.log_prob(logits_of(MEAN, STD), draw) - 2 * (2 * np.log(2) - 60)
  np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_importance_weights_are_the_ratio_of_the_densities_of_actions():
  new, old = logits_of([0.5, 0.0, -1.0], [0.5, 1.0, 0.3]), logits_of([0.2, 0.3, -0.5], [1, 1, 0.5])
  draw = jnp.array([0.4, -0.2, -0.8])
  action = np.tanh(np.asarray(draw, np.float64))

  def density(logits):
    mean, raw_std = np.split(np.asarray(logits, np.float64), 2)
    std = MIN_STD + np.logaddexp(0, raw_std)
    return np.prod(stats.norm.pdf(np.arctanh(action), mean, std) / (1 - action**2))

  ratio = jnp.exp(SQUASHED.log_prob(new, draw) - SQUASHED.log_prob(old, draw))
  np.testing.assert_allclose(ratio, density(new) / density(old), rtol=1e-4)


@GAUSSIANS
def test_an_action_has_a_draw_of_which_it_is_the_action(gaussian, parameters):
  actions = LOW + (HIGH - LOW) * np.linspace(0.001, 0.999, 11)[:, None].astype(np.float32)
  again = gaussian.action(gaussian.draw(actions))
  np.testing.assert_allclose(again, actions, atol=1e-4 * np.max(HIGH - LOW))
  at_bounds = gaussian.draw(np.stack([LOW, HIGH]))
  assert np.isfinite(at_bounds).all()
  np.testing.assert_allclose(
    gaussian.action(at_bounds), np.stack([LOW, HIGH]), atol=1e-3 * np.max(HIGH - LOW)
  )


def test_labels_are_their_own_draws():
  assert Categorical(3).draw(jnp.array([2, 0])).tolist() == [2, 0]
  assert MultiCategorical((2, 4)).draw(jnp.array([[1, 3]])).tolist() == [[1, 3]]
