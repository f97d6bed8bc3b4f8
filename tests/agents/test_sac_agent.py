"""SAC as nodes use it: act, targets, loss, update; against the definitions by hand."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from agents.actor_critic.distributions import MIN_STD
from agents.sac.agent import SAC
from agents.sac.config import SACConfig
from agents.sac.heads import Critics, PolicyHead
from agents.types import LAST
from tests.agents import recording
from tests.agents.recording import CONTINUOUS_ACTION_SPEC, HIGH, LOW, OBSERVATION_SPEC, compiled
from tests.agents.sharding import check_meshes_do_the_update_of_one_device

LOG_TEMPERATURE = -0.7
KEYS = jax.random.split(jax.random.key(3), 8)


@functools.cache
def make_agent(**options):
  small = {'unroll_length': 3, 'head_sizes': (8,), 'discount': 0.9, 'learning_rate': 1e-2}
  return SAC(SACConfig(**small | options), OBSERVATION_SPEC, CONTINUOUS_ACTION_SPEC)


@functools.cache
def recorded():
  """Returns an agent, a learner state in which all parts differ, and unrolls with both kinds of ends."""
  agent = make_agent()
  state, other = (compiled(agent, 'init')(jax.random.key(seed)) for seed in (0, 2))
  logits = state.params.policy['head']['params']['logits']
  logits['kernel'] = 100.0 * logits['kernel']
  params = state.params._replace(log_temperature=jnp.float32(LOG_TEMPERATURE))
  state = state._replace(params=params, target_critics=other.params.critics)
  unrolls = recording.make_unrolls(agent, state, batch_size=8, seed=7)
  ends = unrolls.timestep.step_type[:, 1:] == LAST
  for discount in (0, 1):  # Terminations and truncations.
    assert np.any(ends & (unrolls.timestep.discount[:, 1:] == discount))
  assert np.any(unrolls.timestep.step_type[:, :-1] == LAST)
  return agent, state, unrolls


def dense(layer, x):
  return x @ layer['kernel'] + layer['bias']


def logits_of(policy, observation, activation=jax.nn.relu):
  """Returns the policy's parameters for observations `[..., 3, 2]`, by hand."""
  layers = policy['head']['params']
  x = observation.reshape(*observation.shape[:-2], 6)
  return dense(layers['logits'], activation(dense(layers['Dense_0'], x)))


def q_values(critics, observation, fraction, activation=jax.nn.relu):
  """Returns Q of both critics, `[..., 2]`, for actions `[..., 3]` in [-1, 1], by hand."""
  layers = critics['head']['params']
  x = jnp.concatenate([observation.reshape(*observation.shape[:-2], 6), fraction], -1)
  hidden = [activation(dense(layers[name], x)) for name in ('Dense_0', 'Dense_2')]
  both = zip(('Dense_1', 'Dense_3'), hidden, strict=True)
  return jnp.concatenate([dense(layers[name], y) for name, y in both], -1)


def sampled(policy, observation):
  """Returns what the policy samples with `KEYS` in rows `[8, 3]`: tanh of the draws, log-densities."""
  mean, raw = jnp.split(logits_of(policy, observation), 2, -1)
  std = MIN_STD + jax.nn.softplus(raw)
  noise = jax.vmap(lambda key: jax.random.normal(key, (3, 3)))(KEYS)
  draw = mean + std * noise
  density = jax.scipy.stats.norm.logpdf(draw, mean, std)
  # 1 - tanh(x)^2 is 1 / cosh(x)^2, which float32 has for large x as well.
  return jnp.tanh(draw), jnp.sum(density + 2 * jnp.log(jnp.cosh(draw)), -1)


@pytest.mark.slow
def test_targets_are_those_of_the_definition():
  agent, state, unrolls = recorded()
  targets = compiled(agent, 'targets')(state.params, state.target_critics, unrolls, KEYS)
  assert targets.shape == (8, 3) and targets.dtype == np.float32
  following = unrolls.timestep.observation[:, 1:]
  action, log_prob = sampled(state.params.policy, following)
  both = q_values(state.target_critics, following, action)
  soft = np.min(both, -1) - np.exp(LOG_TEMPERATURE) * np.asarray(log_prob)
  reward, discount = unrolls.timestep.reward[:, 1:], unrolls.timestep.discount[:, 1:]
  np.testing.assert_allclose(targets, reward + 0.9 * discount * soft, rtol=1e-4, atol=1e-5)
  assert 0 < np.mean(both[..., 0] < both[..., 1]) < 1  # Each critic decides some.
  ends = np.asarray(unrolls.timestep.step_type[:, 1:] == LAST)
  terminated, truncated = (ends & (np.asarray(discount) == d) for d in (0, 1))
  np.testing.assert_array_equal(targets[terminated], reward[terminated])
  assert np.all(np.abs(targets - reward)[truncated] > 1e-3)


@pytest.mark.slow
def test_the_gradient_is_that_of_each_loss_for_its_own_part():
  agent, state, unrolls = recorded()
  params, observation = state.params, unrolls.timestep.observation[:, :-1]
  targets = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
  valid = np.asarray(unrolls.timestep.step_type[:, :-1] != LAST)
  targets[~valid] = 1e6
  fraction = (unrolls.action[:, :-1] - LOW) / (HIGH - LOW) * 2 - 1

  def mean(x):
    return jnp.sum(jnp.where(valid, x, 0.0)) / valid.sum()

  def critic_loss(critics):
    errors = q_values(critics, observation, fraction) - targets[..., None]
    return mean(0.5 * jnp.sum(errors**2, -1))

  def policy_loss(policy):
    action, log_prob = sampled(policy, observation)
    q = jnp.min(q_values(params.critics, observation, action), -1)
    return mean(np.exp(LOG_TEMPERATURE) * log_prob - q)

  gradients, metrics = jax.jit(jax.grad(agent.loss, has_aux=True))(params, unrolls, targets, KEYS)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5)
  jax.tree.map(close, gradients.critics, jax.grad(critic_loss)(params.critics) | {'torso': {}})
  jax.tree.map(close, gradients.policy, jax.grad(policy_loss)(params.policy) | {'torso': {}})
  close(metrics['critic_loss'], critic_loss(params.critics))
  close(metrics['policy_loss'], policy_loss(params.policy))
  # Of -alpha (E[log pi] + target entropy), for three dimensions -3, by log alpha.
  log_prob = sampled(params.policy, observation)[1]
  close(gradients.log_temperature, -np.exp(LOG_TEMPERATURE) * (mean(log_prob) - 3.0))
  close(metrics['entropy'], -mean(log_prob))


@pytest.mark.slow
@pytest.mark.parametrize(('std', 'rises'), [(0.05, True), (0.9, False)])
def test_the_temperature_rises_below_the_target_entropy_and_falls_above_it(std, rises):
  agent, state, unrolls = recorded()
  logits = state.params.policy['head']['params']['logits']
  raw = np.log(np.expm1(std - MIN_STD))
  fixed = {'kernel': jnp.zeros_like(logits['kernel']), 'bias': jnp.float32([0] * 3 + [raw] * 3)}
  head = {'params': state.params.policy['head']['params'] | {'logits': fixed}}
  params = state.params._replace(policy={'torso': {}, 'head': head})
  output = compiled(agent, 'update')(state._replace(params=params), unrolls)
  entropy = 3 * stats.norm.entropy(scale=std)  # Before tanh, which hardly changes narrow ones.
  assert (entropy < agent.target_entropy) == rises
  assert (output.state.params.log_temperature > LOG_TEMPERATURE) == rises


@pytest.mark.slow
def test_target_critics_are_the_polyak_average_and_an_update_uses_the_key_of_its_step():
  agent, state, unrolls = recorded()
  update = compiled(agent, 'update')
  average = state.target_critics
  for step in range(4):
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), step)
    keys = [jax.random.split(k, 8) for k in jax.random.split(key)]
    targets = agent.targets(state.params, state.target_critics, unrolls, keys[0])
    loss, _ = agent.loss(state.params, unrolls, targets, keys[1])
    output = update(state, unrolls)
    np.testing.assert_allclose(output.metrics['loss'], loss, rtol=1e-4)
    assert output.priorities is None
    state = output.state
    average = optax.incremental_update(state.params.critics, average, 0.005)
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7),
      state.target_critics,
      average,
    )
  assert state.learner_steps == 4


@pytest.mark.slow
def test_a_new_learner_state_has_temperature_one_equal_targets_and_a_wide_policy():
  agent = make_agent()
  state = compiled(agent, 'init')(jax.random.key(0))
  assert state.params.log_temperature == 0.0
  jax.tree.map(np.testing.assert_array_equal, state.target_critics, state.params.critics)
  first, second = (
    state.params.critics['head']['params'][n]['kernel'] for n in ('Dense_0', 'Dense_2')
  )
  assert not np.allclose(first, second)
  core_state, timestep, _, keys = recording.batch_of_requests(agent, 2000)
  action = compiled(agent, 'act')(state.params, core_state, timestep, jnp.ones(2000), keys).action
  share = np.mean(np.abs((action - LOW) / (HIGH - LOW) * 2 - 1) < 0.5, axis=0)
  np.testing.assert_allclose(share, 0.5, atol=0.1)  # Half of the actions in half of the range.


@pytest.mark.slow
def test_evaluators_take_the_mean_and_actors_sample_within_the_bounds():
  agent, state, _ = recorded()
  core_state, timestep, _, keys = recording.batch_of_requests(agent, 256)
  act = compiled(agent, 'act')
  mean, drawn = (
    act(state.params, core_state, timestep, jnp.full(256, exploration), keys).action
    for exploration in (agent.evaluation_exploration, *agent.exploration(1))
  )
  expected = jnp.tanh(jnp.split(logits_of(state.params.policy, timestep.observation), 2, -1)[0])
  np.testing.assert_allclose(mean, LOW + (expected + 1) / 2 * (HIGH - LOW), rtol=1e-4, atol=1e-5)
  for action in (mean, drawn):
    assert action.dtype == np.float32 and np.all((action >= LOW) & (action <= HIGH))
  assert not np.allclose(mean, drawn, atol=0.01)
  recording.check_answers_depend_on_their_own_row_only(agent, state.params)


@pytest.mark.parametrize('activation', ['relu', 'tanh'])
def test_the_heads_have_the_activation_of_the_options(activation):
  function = getattr(jax.nn, activation)
  features, action = jnp.linspace(-2, 2, 6).reshape(1, 6), jnp.linspace(-1, 1, 3).reshape(1, 3)
  policy = PolicyHead((3,), 2, activation=activation)
  params = policy.init(jax.random.key(0), features)
  layers = params['params']
  expected = dense(layers['logits'], function(dense(layers['Dense_0'], features)))
  np.testing.assert_allclose(policy.apply(params, features), expected, rtol=1e-5)
  critics = Critics((3,), activation=activation)
  params = critics.init(jax.random.key(0), features, action)
  expected = q_values({'head': params}, features.reshape(3, 2), action[0], function)
  np.testing.assert_allclose(critics.apply(params, features, action)[0], expected, rtol=1e-5)


def test_an_agent_has_the_activation_of_its_options():
  (_, state, _), tanh = recorded(), make_agent(activation='tanh')
  core_state, timestep, _, keys = recording.batch_of_requests(tanh, 8)
  greedy = jnp.full(8, tanh.evaluation_exploration)
  action = compiled(tanh, 'act')(state.params, core_state, timestep, greedy, keys).action
  mean = jnp.split(logits_of(state.params.policy, timestep.observation, jnp.tanh), 2, -1)[0]
  expected = LOW + (jnp.tanh(mean) + 1) / 2 * (HIGH - LOW)
  np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_eight_devices_do_the_update_of_one():
  check_meshes_do_the_update_of_one_device('sac', sizes=(8,))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'core': 'lstm'}, "--core is 'lstm': set it to none, since SAC has no memory"),
    ({'tau': 0.0}, '--tau is 0.0: set it to a number above 0 and at most 1'),
    ({'head_sizes': (64, 0)}, r'--head_sizes is \(64, 0\): set it to sizes of at least 1'),
  ],
)
def test_unusable_options_are_rejected_by_name(options, message):
  with pytest.raises(ValueError, match=message):
    make_agent(**options)
