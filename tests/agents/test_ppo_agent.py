"""What PPO has of its own: several gradient steps in an update. test_actor_critic.py has the rest."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.axes import swapped
from agents.metrics import all_finite
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.types import LAST, MID
from tests.agents.recording import (
  ACTION_SPEC,
  OBSERVATION_SPEC,
  make_unrolls,
  sharpened,
)
from tests.agents.sharding import check_meshes_do_the_update_of_one_device
from tests.agents.test_ppo_targets import corrected_definition

BATCH_SIZE = 6
# Adam is plain gradient descent where epsilon is far above every gradient.
PLAIN = {'adam_b1': 0.0, 'adam_eps': 1e6}
RECURRENT = {'core': 'lstm', 'frame_stack': 3}


def make_agent(**options):
  small = {'unroll_length': 4, 'mlp_sizes': (16,), 'core_size': 8, 'max_gradient_norm': 0.0}
  return PPO(PPOConfig(**small | options), OBSERVATION_SPEC, ACTION_SPEC)


@functools.cache
def recorded(core='none', frame_stack=1, seed=0):
  """Returns a learner state and unrolls that it has recorded."""
  agent = make_agent(core=core, frame_stack=frame_stack)
  state = sharpened(agent, seed)
  unrolls = make_unrolls(agent, state, BATCH_SIZE, seed=7)
  ends = unrolls.timestep.step_type[:, 1:] == LAST
  for discount in (0, 1):  # Terminations and truncations.
    assert np.any(ends & (unrolls.timestep.discount[:, 1:] == discount))
  return state, unrolls


@pytest.mark.slow
@pytest.mark.parametrize(
  'options',
  [
    RECURRENT | {'num_minibatches': 3},
    {'minibatch_of': 'transitions', 'num_minibatches': 8},
    {'minibatch_of': 'transitions', 'num_minibatches': 8, 'frame_stack': 3},
  ],
)
def test_every_minibatch_replays_its_own_rows_from_its_own_state(options):
  agent = make_agent(num_epochs=2, learning_rate=1e-30, **options)
  metrics = jax.jit(agent.update)(
    *recorded(options.get('core', 'none'), options.get('frame_stack', 1))
  ).metrics
  np.testing.assert_allclose(metrics['approx_kl'], 0.0, atol=1e-6)
  assert metrics['clip_fraction'] == 0.0
  assert metrics['gradient_steps'] == 2 * options['num_minibatches']


def params_by_hand(agent, config, state, unrolls, rate):
  """Does the epochs of one minibatch each as plain gradient steps; returns the parameters."""
  timestep, action, extras = swapped((unrolls.timestep, unrolls.action, unrolls.extras))
  valid = np.asarray(timestep.step_type[:-1] != LAST)
  taken = jnp.eye(agent.distribution.num_logits)[action]
  log_mu = jnp.sum(jax.nn.log_softmax(extras['behaviour_logits']) * taken, -1)[:-1]

  @jax.jit
  def evaluate(params):
    output, _ = agent.network.unroll(params, unrolls.core_state, timestep, action)
    log_pi = jax.nn.log_softmax(output.logits[:-1])
    ratio = jnp.exp(jnp.sum(log_pi * taken[:-1], -1) - log_mu)
    return output.value, ratio, -jnp.sum(jnp.exp(log_pi) * log_pi, -1)

  values, ratios, _ = map(np.asarray, evaluate(state.params))
  corrects = config.off_policy_correction == 'vtrace'
  advantages, differences = (
    corrected_definition(
      values,
      np.asarray(timestep.reward[1:]),
      config.discount * np.asarray(timestep.discount[1:]),
      valid,
      ratios if corrects else np.ones_like(ratios),
      config.rho_bar if corrects else np.inf,
      config.c_bar if corrects else np.inf,
      config.gae_lambda,
      weighs_own,
    )
    for weighs_own in (False, True)
  )
  targets = values[:-1] + differences
  normalised = (advantages - advantages[valid].mean()) / advantages[valid].std()

  @jax.jit
  @jax.grad
  def gradient(params):
    value, ratio, entropy = evaluate(params)
    # As equation (7) is explained: the gain of a better action ends at 1 + clip, of a worse at 1 - clip.
    better = jnp.minimum(ratio, 1 + config.clip_ratio)
    worse = jnp.maximum(ratio, 1 - config.clip_ratio)
    gain = normalised * jnp.where(normalised > 0, better, worse)
    moved = value[:-1] - values[:-1]
    near = values[:-1] + jnp.clip(moved, -config.clip_value, config.clip_value)
    errors = (value[:-1] - targets) ** 2
    if config.clip_value:
      errors = jnp.maximum(errors, (near - targets) ** 2)
    loss = -gain + config.baseline_cost * errors / 2 - config.entropy_cost * entropy
    return jnp.sum(loss * valid) / valid.sum()

  params = state.params
  for _ in range(config.num_epochs):
    params = jax.tree.map(lambda p, g: p - rate * g, params, gradient(params))
  return params


@pytest.mark.slow
@pytest.mark.parametrize(
  'core, options',
  [
    ('lstm', {'num_epochs': 1, 'clip_ratio': 1e9}),
    ('none', {'num_epochs': 3, 'clip_value': 0.05, 'off_policy_correction': 'vtrace'}),
    ('none', {'num_epochs': 1}),
  ],
)
def test_an_update_on_stale_data_is_the_gradient_steps_done_by_hand(core, options):
  options = {**options, **PLAIN, 'num_minibatches': 1, 'baseline_cost': 2.0}
  if core == 'lstm':
    options |= RECURRENT
  rate = 0.05
  agent = make_agent(learning_rate=rate * PLAIN['adam_eps'], **options)
  depth = options.get('frame_stack', 1)
  (state, _), (_, unrolls) = recorded(core, depth), recorded(core, depth, seed=1)
  output = jax.jit(agent.update)(state, unrolls)
  assert abs(output.metrics['behaviour_kl']) > 0.1  # Another policy acted.
  expected = params_by_hand(agent, PPOConfig(**options), state, unrolls, rate)
  moved = jax.tree.map(lambda a, b: a - b, output.state.params, state.params)
  by_hand = jax.tree.map(lambda a, b: a - b, expected, state.params)
  assert max(np.abs(x).max() for x in jax.tree.leaves(by_hand)) > 1e-2
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), moved, by_hand)


def whole_unrolls():
  """Returns a state and unrolls in which every row begins a transition."""
  state, unrolls = recorded()
  step_type = jnp.full_like(unrolls.timestep.step_type, MID)
  return state, unrolls._replace(timestep=unrolls.timestep._replace(step_type=step_type))


@pytest.mark.slow
@pytest.mark.parametrize('minibatch_of, number', [('unrolls', 3), ('transitions', 8)])
def test_an_epoch_uses_every_sample_once(minibatch_of, number):
  """At a small rate the gradients of an epoch's minibatches add up to that of the batch."""
  state, unrolls = whole_unrolls()
  options = {'normalize_advantages': False, 'minibatch_of': minibatch_of, **PLAIN}
  steps = []
  for epochs, minibatches, rate in ((1, 1, 1e-3), (2, number, 1e-3 / (2 * number))):
    agent = make_agent(
      learning_rate=rate * 1e6, num_epochs=epochs, num_minibatches=minibatches, **options
    )
    params = jax.jit(agent.update)(state, unrolls).state.params
    steps.append(jax.tree.map(lambda a, b: a - b, params, state.params))
  largest = max(np.abs(x).max() for x in jax.tree.leaves(steps[0]))
  assert largest > 1e-4
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.02 * largest), *steps)


@pytest.mark.slow
def test_equal_states_do_equal_updates_and_later_ones_take_other_minibatches():
  agent = make_agent(num_epochs=1, num_minibatches=3, learning_rate=1e-2)
  state, unrolls = recorded()
  update = jax.jit(agent.update)
  once, again = update(state, unrolls), update(state, unrolls)
  jax.tree.map(np.testing.assert_array_equal, once, again)
  np.testing.assert_array_equal(once.state.key, state.key)
  later = update(state._replace(learner_steps=state.learner_steps + 1), unrolls)
  other = update(sharpened(agent, seed=1)._replace(params=state.params), unrolls)
  for changed in (later, other):
    pairs = zip(*map(jax.tree.leaves, (once.state.params, changed.state.params)), strict=True)
    assert any(np.any(a != b) for a, b in pairs)


@pytest.mark.slow
def test_data_of_a_policy_that_is_far_off_leaves_the_update_finite():
  state, unrolls = recorded()
  logits = unrolls.extras['behaviour_logits']
  far = jnp.where(jnp.arange(BATCH_SIZE)[:, None, None] % 2, -300.0, 300.0)
  extras = {'behaviour_logits': logits + far * jnp.eye(logits.shape[-1])[unrolls.action]}
  agent = make_agent(num_minibatches=3, off_policy_correction='vtrace')
  output = jax.jit(agent.update)(state, unrolls._replace(extras=extras))
  assert all_finite(output.state.params, output.metrics)
  assert all(np.isfinite(x) for x in output.metrics.values())


@pytest.mark.slow
def test_a_batch_that_does_not_divide_is_rejected_by_the_flag():
  state, unrolls = recorded()
  with pytest.raises(ValueError, match=r'^--num_minibatches=4 does not divide a batch of 6 '):
    make_agent(num_minibatches=4).update(state, unrolls)


@pytest.mark.slow
@pytest.mark.parametrize(  # test_normalization.py has PPO of unrolls, with statistics as well.
  'name', [pytest.param('ppo', marks=pytest.mark.nightly), 'ppo_of_transitions']
)
def test_eight_devices_do_the_update_of_one_and_move_only_sums(name):
  check_meshes_do_the_update_of_one_device(name, sizes=(8,))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'num_epochs': 0}, r'--num_epochs is 0: set it to 1 or more\.'),
    ({'num_minibatches': 0}, r'--num_minibatches is 0: set it to 1 or more\.'),
    ({'clip_ratio': 0.0}, r'--clip_ratio is 0\.0: set it to a number above 0\.'),
    ({'clip_value': -0.1}, r'--clip_value is -0\.1: set it to 0 or more\.'),
    ({'c_bar': 0.5}, r'--c_bar is 0\.5: set it to 1\.0, or add --off_policy_correction=vtrace\.'),
    ({'gae_lambda': 1.5}, r'--gae_lambda is 1\.5: set it to a number from 0 to 1\.'),
    ({'minibatch_of': 'rows'}, r"--minibatch_of is 'rows': set it to unrolls or transitions\."),
    (
      {'off_policy_correction': 'is'},
      r"--off_policy_correction is 'is': set it to none or vtrace\.",
    ),
    (
      {'minibatch_of': 'transitions', 'core': 'lstm'},
      r"--core is 'lstm': .*--minibatch_of=transitions",
    ),
  ],
)
def test_unusable_options_are_rejected_by_name(options, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make_agent(**options)
