"""V-trace with continuous actions: the distribution, and the agent that acts and learns by it."""

from __future__ import annotations

import dataclasses
import functools

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from agents.actor_critic import squashed_entropy
from agents.actor_critic.distributions import MIN_STD, SquashedGaussian, make_distribution
from agents.types import LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.recording import (
  OBSERVATION_SPEC,
  check_answers_depend_on_their_own_row_only,
  compiled,
  make_unrolls,
  random_rows,
)

LOW, HIGH = np.array([-2.0, 0.0, 5.0], np.float32), np.array([2.0, 0.1, 7.0], np.float32)
ACTION_SPEC = dm_env.specs.BoundedArray((3,), np.float32, LOW, HIGH)
GAUSSIAN = SquashedGaussian(ACTION_SPEC)
FEEDFORWARD = VTraceConfig(unroll_length=6, mlp_sizes=(16,), lstm_size=8)
RECURRENT = dataclasses.replace(FEEDFORWARD, core='lstm', frame_stack=3)


def logits_of(mean, std):
  """The parameters that give these means and standard deviations, `[A]` each."""
  raw = np.log(np.expm1(np.asarray(std) - MIN_STD))
  return jnp.asarray(np.concatenate([mean, raw]), jnp.float32)


@functools.cache
def make_agent(config):
  return VTrace(config, OBSERVATION_SPEC, ACTION_SPEC)


@functools.cache
def spread(config):
  """Returns a learner state whose policy differs from row to row."""
  state = compiled(make_agent(config), 'init')(jax.random.key(0))
  logits = state.params['params']['head']['logits']
  logits['kernel'] = 100.0 * logits['kernel']
  return state


@functools.cache
def recorded_unrolls(config):
  """Returns 5 unrolls of the policy of `spread(config)`."""
  return make_unrolls(make_agent(config), spread(config))


def test_log_density_is_that_of_the_gaussian_before_tanh():
  mean, std = np.array([0.3, -1.0, 2.0]), np.array([0.5, 1.0, 0.1])
  draw = np.array([0.1, 0.5, 2.2])
  expected = stats.norm.logpdf(draw, mean, std).sum()
  actual = GAUSSIAN.log_prob(logits_of(mean, std), jnp.asarray(draw, jnp.float32))
  np.testing.assert_allclose(actual, expected, rtol=1e-5)


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


STDS = [0.05, 0.3, 0.99, 1.01, 1.5, 3.0, 5.0, 10.0, 20.0]


@pytest.mark.parametrize('std', STDS)
@pytest.mark.parametrize('mean', [0.0, 0.7, -4.0, 12.0])
def test_entropy_and_its_gradient_are_those_of_the_action(mean, std):
  mean_and_std = jnp.float32(mean), jnp.float32(std)
  entropy, gradient = jax.value_and_grad(squashed_entropy.entropy, argnums=(0, 1))(*mean_and_std)
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
      value = jax.value_and_grad(squashed_entropy.entropy, argnums=(0, 1))
      assert np.isfinite(jax.tree.leaves(value(jnp.float32(mean), jnp.float32(std)))).all()


def test_entropies_and_densities_of_dimensions_add_up():
  mean, std = np.array([0.3, -1.0, 2.0]), np.array([0.5, 1.0, 0.1])
  parts = sum(entropy_of_tanh(m, s) for m, s in zip(mean, std, strict=True))
  batch = jnp.broadcast_to(logits_of(mean, std), (4, 5, 6))
  entropy = GAUSSIAN.entropy(batch)
  np.testing.assert_allclose(entropy, np.full((4, 5), parts), atol=1e-4)
  assert GAUSSIAN.log_prob(batch, jnp.zeros((4, 5, 3))).shape == (4, 5)


def test_actions_keep_to_their_bounds_and_fill_them():
  draws = jnp.concatenate([jnp.linspace(-30, 30, 601), jnp.array([-1e9, 1e9])])
  actions = np.asarray(GAUSSIAN.action(jnp.tile(draws[:, None], 3)))
  assert actions.dtype == np.float32 and actions.shape == (603, 3)
  assert (actions >= LOW).all() and (actions <= HIGH).all()
  np.testing.assert_array_equal([actions.min(0), actions.max(0)], [LOW, HIGH])
  np.testing.assert_allclose(GAUSSIAN.action(jnp.zeros(3)), (LOW + HIGH) / 2, rtol=1e-6)


@pytest.mark.parametrize('shape', [(), (2, 2)])
def test_actions_of_any_shape(shape):
  distribution = make_distribution(dm_env.specs.BoundedArray(shape, np.float32, -1, 1))
  size = int(np.prod(shape))
  draw = distribution.sample(jax.random.key(0), jnp.zeros(2 * size))
  assert distribution.num_logits == 2 * size and draw.shape == (size,)
  assert distribution.action(jnp.stack([draw] * 3)).shape == (3, *shape)


@pytest.mark.parametrize(
  'spec',
  [
    dm_env.specs.Array((2,), np.float32),
    dm_env.specs.BoundedArray((2,), np.float32, -np.inf, np.inf),
    dm_env.specs.BoundedArray((2,), np.int32, 0, 3),
  ],
)
def test_other_actions_are_refused(spec):
  with pytest.raises(ValueError, match='this agent needs discrete or bounded continuous actions'):
    VTrace(FEEDFORWARD, OBSERVATION_SPEC, spec)


@pytest.mark.parametrize('config', [FEEDFORWARD, RECURRENT])
def test_answers_depend_on_their_own_row_only(config):
  agent = make_agent(config)
  check_answers_depend_on_their_own_row_only(agent, spread(config).params)


def test_training_samples_from_the_policy_and_evaluation_takes_its_mean():
  agent, size = make_agent(FEEDFORWARD), 4096
  params, act = spread(FEEDFORWARD).params, compiled(agent, 'act')
  one = jax.tree.map(lambda x: x[1, :1], random_rows(2, 1))
  timestep = jax.tree.map(lambda x: jnp.repeat(x, size, axis=0), one)
  keys = jax.random.split(jax.random.key(0), size)
  training = act(params, {}, timestep, jnp.asarray(agent.exploration(size)), keys)
  mean, raw_std = np.split(training.extras['behaviour_logits'][0], 2)
  std = MIN_STD + np.logaddexp(0, raw_std)
  np.testing.assert_allclose(training.extras['draw'].mean(0), mean, atol=0.06)
  np.testing.assert_allclose(training.extras['draw'].std(0), std, rtol=0.05)
  scaled = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.tanh(training.extras['draw'])
  np.testing.assert_allclose(training.action, scaled, atol=1e-5)
  assert training.action.dtype == jnp.float32
  evaluation = act(params, {}, timestep, jnp.full(size, agent.evaluation_exploration), keys)
  expected = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.tanh(mean)
  np.testing.assert_allclose(evaluation.action, np.tile(expected, (size, 1)), atol=1e-5)


@pytest.mark.parametrize('config', [FEEDFORWARD, RECURRENT])
def test_replaying_an_unroll_reproduces_the_recorded_parameters(config):
  agent = make_agent(config)
  state, unrolls = spread(config), recorded_unrolls(config)
  assert np.any(unrolls.timestep.step_type == LAST)
  assert unrolls.action.shape == unrolls.extras['draw'].shape == (5, agent.unroll_rows, 3)
  timestep, action = jax.tree.map(
    lambda x: jnp.swapaxes(x, 0, 1), (unrolls.timestep, unrolls.action)
  )
  output, _ = jax.jit(agent.network.unroll)(state.params, unrolls.core_state, timestep, action)
  recorded = jnp.swapaxes(unrolls.extras['behaviour_logits'], 0, 1)
  np.testing.assert_allclose(output.logits, recorded, rtol=0, atol=1e-5)
  draw = jnp.swapaxes(unrolls.extras['draw'], 0, 1)
  log_ratio = GAUSSIAN.log_prob(output.logits, draw) - GAUSSIAN.log_prob(recorded, draw)
  np.testing.assert_allclose(np.exp(log_ratio), 1.0, atol=1e-5)
  metrics = compiled(agent, 'update')(state, unrolls, None).metrics
  np.testing.assert_allclose(metrics['rho'], 1.0, atol=1e-5)


def test_the_core_sees_the_action_that_was_executed():
  agent, state, unrolls = make_agent(RECURRENT), spread(RECURRENT), recorded_unrolls(RECURRENT)
  assert agent.initial_core_state(2)['prev_action'].shape == (2, 3)
  other = unrolls._replace(action=unrolls.action + 1.0)
  update = compiled(agent, 'update')
  loss, other_loss = (update(state, x, None).metrics['loss'] for x in (unrolls, other))
  assert np.isfinite(loss) and np.isfinite(other_loss) and loss != other_loss


def test_importance_weights_are_the_ratio_of_the_densities_of_actions():
  new, old = logits_of([0.5, 0.0, -1.0], [0.5, 1.0, 0.3]), logits_of([0.2, 0.3, -0.5], [1, 1, 0.5])
  draw = jnp.array([0.4, -0.2, -0.8])
  action = np.tanh(np.asarray(draw, np.float64))

  def density(logits):
    mean, raw_std = np.split(np.asarray(logits, np.float64), 2)
    std = MIN_STD + np.logaddexp(0, raw_std)
    return np.prod(stats.norm.pdf(np.arctanh(action), mean, std) / (1 - action**2))

  ratio = jnp.exp(GAUSSIAN.log_prob(new, draw) - GAUSSIAN.log_prob(old, draw))
  np.testing.assert_allclose(ratio, density(new) / density(old), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize('reward, towards', [(1.0, True), (-1.0, False)])
def test_a_step_raises_the_density_of_what_was_better_than_expected(reward, towards):
  config = dataclasses.replace(FEEDFORWARD, entropy_cost=0.0, baseline_cost=0.0)
  agent, state = make_agent(config), spread(config)
  unrolls = make_unrolls(agent, state, batch_size=1)
  step_type = jnp.full_like(unrolls.timestep.step_type, 1)
  reward = jnp.full(step_type.shape, 100 * reward)  # More than the values of all rows.
  timestep = unrolls.timestep._replace(
    step_type=step_type, reward=reward, discount=jnp.zeros(step_type.shape)
  )
  unrolls = unrolls._replace(timestep=timestep)

  @jax.jit
  def log_density(params):
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (timestep, unrolls.action))
    output, _ = agent.network.unroll(params, unrolls.core_state, *rows)
    draw = jnp.swapaxes(unrolls.extras['draw'], 0, 1)
    return jnp.sum(GAUSSIAN.log_prob(output.logits, draw)[:-1])

  after = compiled(agent, 'update')(state, unrolls, None).state
  assert (log_density(after.params) > log_density(state.params)) == towards


def test_rewards_are_scaled_before_they_are_clipped():
  state, unrolls = spread(FEEDFORWARD), recorded_unrolls(FEEDFORWARD)

  def loss(scale, limit, factor):
    config = dataclasses.replace(FEEDFORWARD, reward_scale=scale, max_abs_reward=limit)
    timestep = unrolls.timestep._replace(reward=factor * unrolls.timestep.reward)
    update = compiled(make_agent(config), 'update')
    return float(update(state, unrolls._replace(timestep=timestep), None).metrics['loss'])

  unscaled = loss(1.0, 0.0, 1.0)
  assert np.isfinite(unscaled)
  assert loss(0.5, 0.0, 2.0) == unscaled != loss(1.0, 0.0, 2.0)
  assert loss(0.5, 0.1, 2.0) == loss(1.0, 0.1, 1.0) != unscaled
