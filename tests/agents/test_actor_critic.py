"""What holds for every actor-critic agent: act, replay, update, configure."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.actor_critic.config import ActorCriticConfig
from agents.actor_critic.distributions import MIN_STD
from agents.axes import swapped
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.rewards import scaled_rewards
from agents.types import LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.recording import (
  ACTION_SPEC,
  CONTINUOUS_ACTION_SPEC,
  HIGH,
  LOW,
  NUM_ACTIONS,
  OBSERVATION_SPEC,
  check_answers_depend_on_their_own_row_only,
  make_unrolls,
  random_rows,
  sharpened,
)

# PPO with one gradient step for each update.
AGENTS = {
  'vtrace': (VTrace, VTraceConfig, {}),
  'ppo': (PPO, PPOConfig, {'num_epochs': 1, 'num_minibatches': 1}),
}
RECURRENT = {'core': 'lstm', 'frame_stack': 3}
# Actions and networks.
KINDS = {
  'labels': (ACTION_SPEC, {}),
  'labels, recurrent': (ACTION_SPEC, RECURRENT),
  'squashed, recurrent': (CONTINUOUS_ACTION_SPEC, RECURRENT),
  'clipped, two torsos': (CONTINUOUS_ACTION_SPEC, {'policy_std': 'free', 'separate_critic': True}),
}
every_agent = pytest.mark.parametrize('name', AGENTS)


def make_agent(name, kind='labels', **options):
  agent, config, own = AGENTS[name]
  action_spec, network = KINDS[kind]
  small = {'unroll_length': 6, 'mlp_sizes': (16,), 'core_size': 8, 'max_gradient_norm': 40.0}
  return agent(config(**small | own | network | options), OBSERVATION_SPEC, action_spec)


@functools.cache
def recorded(name, kind='labels'):
  """Returns an agent, its learner state, unrolls that it has recorded, and its compiled update."""
  agent = make_agent(name, kind)
  state = sharpened(agent)
  return agent, state, make_unrolls(agent, state), jax.jit(agent.update)


# Both agents act by the same function, so each shows it for some kinds.
@pytest.mark.slow
@pytest.mark.parametrize('name, kind', zip(['vtrace', 'ppo'] * 2, KINDS, strict=True))
def test_answers_depend_on_their_own_row_only(name, kind):
  agent = make_agent(name, kind)
  check_answers_depend_on_their_own_row_only(agent, sharpened(agent).params)


def answers_to_one_row(agent, size=4096):
  """Returns answers to the same row, first of training environments, then of evaluators."""
  params = sharpened(agent).params
  one = jax.tree.map(lambda x: x[1, :1], random_rows(2, 1))
  timestep = jax.tree.map(lambda x: jnp.repeat(x, size, axis=0), one)
  keys = jax.random.split(jax.random.key(0), size)
  training = jnp.asarray(agent.exploration(size))
  evaluation = jnp.full(size, agent.evaluation_exploration)
  act = jax.jit(agent.act)
  return [act(params, {}, timestep, exploration, keys) for exploration in (training, evaluation)]


def test_training_samples_from_the_policy_and_evaluation_takes_the_likeliest():
  agent = make_agent('vtrace')
  training, evaluation = answers_to_one_row(agent)
  probabilities = jax.nn.softmax(training.extras['behaviour_logits'][0])
  assert 0.1 < probabilities.max() < 0.9
  frequencies = np.bincount(training.action, minlength=NUM_ACTIONS) / len(training.action)
  np.testing.assert_allclose(frequencies, probabilities, atol=0.03)
  assert np.all(evaluation.action == np.argmax(probabilities))
  assert training.action.dtype == jnp.int32
  assert training.extras['behaviour_logits'].shape == (4096, NUM_ACTIONS)
  assert agent.exploration(3).dtype == np.float32


@pytest.mark.parametrize(
  'policy_std, squash, std_of',
  [
    ('state', np.tanh, lambda raw: MIN_STD + np.logaddexp(0, raw)),
    ('free', lambda draw: np.clip(draw, -1, 1), np.exp),
  ],
)
def test_training_samples_from_the_policy_and_evaluation_takes_its_mean(policy_std, squash, std_of):
  agent = make_agent('vtrace', 'clipped, two torsos', policy_std=policy_std)
  training, evaluation = answers_to_one_row(agent)
  mean, raw_std = np.split(training.extras['behaviour_logits'][0], 2)
  np.testing.assert_allclose(training.extras['draw'].mean(0), mean, atol=0.06)
  np.testing.assert_allclose(training.extras['draw'].std(0), std_of(raw_std), rtol=0.05)
  middle, half = (LOW + HIGH) / 2, (HIGH - LOW) / 2
  expected = middle + half * squash(training.extras['draw'])
  np.testing.assert_allclose(training.action, expected, atol=1e-5)
  assert training.action.dtype == jnp.float32
  expected = np.tile(middle + half * squash(mean), (4096, 1))
  np.testing.assert_allclose(evaluation.action, expected, atol=1e-5)


# Both replay by the same network.
@pytest.mark.slow
@pytest.mark.parametrize(
  'name, kind',
  [
    ('vtrace', 'labels, recurrent'),
    ('ppo', 'labels, recurrent'),
    ('ppo', 'squashed, recurrent'),
    ('vtrace', 'clipped, two torsos'),
  ],
)
def test_replaying_an_unroll_reproduces_the_recorded_policy(name, kind):
  agent, state, unrolls, update = recorded(name, kind)
  assert np.any(unrolls.timestep.step_type == LAST)
  assert unrolls.action.shape[:2] == (5, agent.unroll_rows)
  timestep, action, extras = swapped((unrolls.timestep, unrolls.action, unrolls.extras))
  output, _ = jax.jit(agent.network.unroll)(state.params, unrolls.core_state, timestep, action)
  np.testing.assert_allclose(output.logits, extras['behaviour_logits'], rtol=0, atol=1e-5)
  metrics = update(state, unrolls).metrics
  np.testing.assert_allclose(metrics['rho'], 1.0, atol=1e-5)
  np.testing.assert_allclose(metrics['behaviour_kl'], 0.0, atol=1e-5)
  if name == 'ppo':  # In its first gradient step.
    np.testing.assert_allclose(metrics['approx_kl'], 0.0, atol=1e-6)
    assert metrics['clip_fraction'] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
  'name, steps, options',
  [('vtrace', 1, {}), ('ppo', 10, {'num_epochs': 2, 'num_minibatches': 5})],
)
def test_update_steps_and_reports(name, steps, options):
  agent = make_agent(name, 'labels, recurrent', learning_rate=1e-3, adam_eps=1e-8, **options)
  _, _, unrolls, _ = recorded(name, 'labels, recurrent')
  state = sharpened(agent)
  versions = jnp.zeros_like(unrolls.policy_version).at[0, 0].set(-5)
  unrolls = unrolls._replace(policy_version=versions)
  update = jax.jit(agent.update, donate_argnums=0)
  params = jax.device_get(state.params)
  state, priorities, metrics = update(state, unrolls, None)
  state, _, metrics = update(state, unrolls, None)
  assert priorities is None
  assert state.learner_steps == 2 and state.learner_steps.dtype == jnp.int32
  assert metrics['policy_lag_max'] == 6.0
  np.testing.assert_allclose(metrics['policy_lag_mean'], 1 + 5 / versions.size, rtol=1e-6)
  np.testing.assert_allclose(metrics['learning_rate'], 1e-3, rtol=1e-6)
  assert metrics.get('gradient_steps', 2 * steps) == 2 * steps
  assert all(x.shape == () and np.isfinite(x) for x in metrics.values())
  # Adam's first steps are of the size of the learning rate, and every parameter takes part.
  for before, after in zip(jax.tree.leaves(params), jax.tree.leaves(state.params), strict=True):
    step = np.abs(after - before).max()
    assert 0.5e-3 < step < 2.1e-3 * steps


@pytest.mark.slow
@pytest.mark.parametrize('name, options', [('vtrace', {'loss_reduction': 'sum'}), ('ppo', {})])
def test_gradients_are_clipped_by_global_norm_after_they_are_measured(name, options):
  # With a large epsilon Adam's first step is the gradient times learning_rate / eps.
  agent = make_agent(name, adam_eps=1e3, learning_rate=1e3, max_gradient_norm=0.01, **options)
  _, state, unrolls, _ = recorded(name)
  new, _, metrics = jax.jit(agent.update)(state, unrolls)
  assert metrics['grad_norm'] > 0.1
  steps = jax.tree.leaves(jax.tree.map(lambda a, b: a - b, new.params, state.params))
  norm = np.sqrt(sum(np.sum(np.square(x)) for x in steps))
  np.testing.assert_allclose(norm, 0.01, rtol=1e-3)


@pytest.mark.slow
def test_the_core_sees_the_action_that_was_executed():
  agent, state, unrolls, update = recorded('ppo', 'squashed, recurrent')
  assert agent.initial_core_state(2)['prev_action'].shape == (2, 3)
  other = unrolls._replace(action=unrolls.action + 1.0)
  assert update(state, unrolls).metrics['loss'] != update(state, other).metrics['loss']


@pytest.mark.slow
@pytest.mark.parametrize('name, kind', [('ppo', 'labels'), ('vtrace', 'clipped, two torsos')])
def test_a_step_raises_the_probability_of_what_was_better_than_expected(name, kind):
  options = {'entropy_cost': 0.0, 'baseline_cost': 0.0}
  if name == 'ppo':
    options['normalize_advantages'] = False  # All of them are alike here.
  agent = make_agent(name, kind, **options)
  _, state, unrolls, _ = recorded(name, kind)
  unrolls = jax.tree.map(lambda x: x[:1], unrolls)
  step_type = jnp.ones_like(unrolls.timestep.step_type)
  timestep = unrolls.timestep._replace(step_type=step_type, discount=jnp.zeros(step_type.shape))
  draw = unrolls.extras.get('draw', unrolls.action)

  def log_probability(params):
    rows = swapped((timestep, unrolls.action))
    output, _ = agent.network.unroll(params, unrolls.core_state, *rows)
    return jnp.sum(agent.distribution.log_prob(output.logits, swapped(draw))[:-1])

  update, before = jax.jit(agent.update), log_probability(state.params)
  for reward in (100.0, -100.0):  # More than the values of all rows.
    rewarded = timestep._replace(reward=jnp.full(step_type.shape, reward))
    after = log_probability(update(state, unrolls._replace(timestep=rewarded)).state.params)
    assert (after > before) == (reward > 0)


def test_rewards_are_scaled_before_they_are_clipped():
  reward = jnp.array([-9.0, -0.5, 0.0, 0.5, 9.0])
  config = ActorCriticConfig(reward_scale=0.5, max_abs_reward=2.0)
  np.testing.assert_array_equal(scaled_rewards(config, reward), [-2, -0.25, 0, 0.25, 2])
  np.testing.assert_array_equal(scaled_rewards(ActorCriticConfig(), reward), reward)


@pytest.mark.slow
@every_agent
def test_the_loss_sees_scaled_rewards(name):
  _, state, unrolls, update = recorded(name)
  config = ActorCriticConfig(reward_scale=0.5, max_abs_reward=0.3)
  rewards = scaled_rewards(config, unrolls.timestep.reward)
  seen = unrolls._replace(timestep=unrolls.timestep._replace(reward=rewards))
  loss, raw = (update(state, x).metrics['loss'] for x in (seen, unrolls))
  scaling = make_agent(name, reward_scale=0.5, max_abs_reward=0.3)
  assert jax.jit(scaling.update)(state, unrolls).metrics['loss'] == loss != raw


@every_agent
def test_unroll_geometry(name):
  agent = make_agent(name, unroll_length=20)
  assert (agent.unroll_rows, agent.unroll_period) == (21, 20)
  assert agent.initial_core_state(3) == {}


@every_agent
@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'unroll_length': 0}, r'--unroll_length is 0: set it to 1 or more\.'),
    (
      {'torso': 'resnet'},
      r"--torso is 'resnet': set it to auto, mlp, nature, small, impala, minatar or path.*",
    ),
    ({'core': 'rnn'}, r"--core is 'rnn': set it to none, lstm, gru or lru\."),
    ({'activation': 'gelu'}, r"--activation is 'gelu': set it to relu or tanh\."),
    ({'init': 'zeros'}, r"--init is 'zeros': set it to fan_in or orthogonal\."),
    ({'optimizer': 'sgd'}, r"--optimizer is 'sgd': set it to adam, radam or rmsprop\."),
    ({'rmsprop_eps_place': 'out'}, r"--rmsprop_eps_place is 'out': set it to inside or outside\."),
    ({'policy_std': 'fixed'}, r"--policy_std is 'fixed': set it to state or free\."),
    ({'learning_rate': -1e-3}, r'--learning_rate is -0\.001: set it to a number above 0\.'),
    ({'discount': float('nan')}, r'--discount is nan: '),
    ({'rho_bar': 0.5}, r'--rho_bar is 0\.5: set it to at least --c_bar, 1\.0\.'),
    ({'entropy_cost': -1.0}, r'--entropy_cost is -1\.0: set it to 0 or more\.'),
    ({'mlp_sizes': (64, 0)}, r'--mlp_sizes is \(64, 0\): '),
    ({'frame_stack': 0}, r'--frame_stack is 0: set it to 1'),
    (
      {'separate_critic': True, 'core': 'lstm'},
      r"--core is 'lstm': set it to none, or set --noseparate_critic\.",
    ),
    ({'learning_rate_schedule': 'step'}, r"--learning_rate_schedule is 'step': .*cosine\."),
    ({'learning_rate_schedule': 'linear'}, r'--learning_rate_decay_steps is 0: .*linear ends'),
    ({'learning_rate_decay_steps': 9}, r'--learning_rate_decay_steps is 9: .*=linear'),
    ({'learning_rate_warmup_steps': -1}, r'--learning_rate_warmup_steps is -1: '),
    (
      {
        'learning_rate_schedule': 'cosine',
        'learning_rate_decay_steps': 9,
        'learning_rate_warmup_steps': 9,
      },
      r'--learning_rate_warmup_steps is 9: set it to less than the 9 .*=cosine ends',
    ),
  ],
)
def test_unusable_options_are_rejected_by_name(name, options, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make_agent(name, **options)
