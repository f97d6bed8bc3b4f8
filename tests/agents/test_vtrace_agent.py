"""The V-trace agent as nodes use it: act, replay, update, shard, configure."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.optimizers import make_schedule
from agents.types import LAST
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.recording import (
  ACTION_SPEC,
  NUM_ACTIONS,
  OBSERVATION_SPEC,
  check_answers_depend_on_their_own_row_only,
  compiled,
  make_unrolls,
  random_rows,
)
from tests.agents.sharding import check_meshes_do_the_update_of_one_device

SMALL = VTraceConfig(unroll_length=6, mlp_sizes=(16,), lstm_size=8)
RECURRENT = dataclasses.replace(SMALL, core='lstm', frame_stack=3)


@functools.cache
def make_agent(config):
  return VTrace(config, OBSERVATION_SPEC, ACTION_SPEC)


@functools.cache
def sharpened(config):
  """Returns a learner state whose policy is far from uniform."""
  state = compiled(make_agent(config), 'init')(jax.random.key(0))
  logits = state.params['params']['head']['logits']
  logits['kernel'] = 300.0 * logits['kernel']
  return state


@functools.cache
def recorded_unrolls(config):
  """Returns 5 unrolls of the policy of `sharpened(config)`."""
  return make_unrolls(make_agent(config), sharpened(config))


@pytest.mark.parametrize('config', [SMALL, RECURRENT])
def test_answers_depend_on_their_own_row_only(config):
  agent = make_agent(config)
  check_answers_depend_on_their_own_row_only(agent, sharpened(config).params)


def test_training_samples_from_the_policy_and_evaluation_takes_the_likeliest():
  agent = make_agent(SMALL)
  params, size = sharpened(SMALL).params, 4096
  act = compiled(agent, 'act')
  one = jax.tree.map(lambda x: x[1, :1], random_rows(2, 1))
  timestep = jax.tree.map(lambda x: jnp.repeat(x, size, axis=0), one)
  keys = jax.random.split(jax.random.key(0), size)
  training = act(params, {}, timestep, jnp.asarray(agent.exploration(size)), keys)
  probabilities = jax.nn.softmax(training.extras['behaviour_logits'][0])
  assert 0.1 < probabilities.max() < 0.9
  frequencies = np.bincount(training.action, minlength=NUM_ACTIONS) / size
  np.testing.assert_allclose(frequencies, probabilities, atol=0.03)
  evaluation = act(params, {}, timestep, jnp.full(size, agent.evaluation_exploration), keys)
  assert np.all(evaluation.action == np.argmax(probabilities))
  assert training.action.dtype == jnp.int32
  assert training.extras['behaviour_logits'].shape == (size, NUM_ACTIONS)
  assert agent.exploration(3).dtype == np.float32


@pytest.mark.parametrize('config', [SMALL, RECURRENT])
def test_replaying_an_unroll_reproduces_the_recorded_logits(config):
  agent = make_agent(config)
  state, unrolls = sharpened(config), recorded_unrolls(config)
  assert np.any(unrolls.timestep.step_type == LAST)
  assert unrolls.action.shape == (5, agent.unroll_rows)
  timestep = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), unrolls.timestep)
  output, _ = jax.jit(agent.network.unroll)(
    state.params, unrolls.core_state, timestep, jnp.swapaxes(unrolls.action, 0, 1)
  )
  recorded = jnp.swapaxes(unrolls.extras['behaviour_logits'], 0, 1)
  np.testing.assert_allclose(output.logits, recorded, rtol=0, atol=1e-5)
  metrics = compiled(agent, 'update')(state, unrolls, None).metrics
  np.testing.assert_allclose(metrics['rho'], 1.0, atol=1e-5)


def test_update_steps_and_reports():
  state, unrolls = sharpened(RECURRENT), recorded_unrolls(RECURRENT)
  versions = jnp.zeros_like(unrolls.policy_version).at[0, 0].set(-5)
  unrolls = unrolls._replace(policy_version=versions)
  update = compiled(make_agent(RECURRENT), 'update')
  params = jax.device_get(state.params)
  state, priorities, metrics = update(state, unrolls, None)
  state, _, metrics = update(state, unrolls, None)
  assert priorities is None
  assert state.learner_steps == 2 and state.learner_steps.dtype == jnp.int32
  assert metrics['policy_lag_max'] == 6.0
  np.testing.assert_allclose(metrics['policy_lag_mean'], 1 + 5 / versions.size, rtol=1e-6)
  np.testing.assert_allclose(metrics['learning_rate'], RECURRENT.learning_rate, rtol=1e-6)
  assert all(x.shape == () and np.isfinite(x) for x in metrics.values())
  # Adam's steps are of the size of the learning rate, and every parameter takes part.
  for before, after in zip(jax.tree.leaves(params), jax.tree.leaves(state.params), strict=True):
    step = np.abs(after - before).max()
    assert 0.5 * RECURRENT.learning_rate < step < 2.1 * RECURRENT.learning_rate


def test_gradients_are_clipped_by_global_norm_after_they_are_measured():
  # With a large epsilon Adam's first step is the gradient times learning_rate / eps.
  config = dataclasses.replace(SMALL, adam_eps=1e3, learning_rate=1e3, max_gradient_norm=0.01)
  state = sharpened(config)
  new, _, metrics = compiled(make_agent(config), 'update')(state, recorded_unrolls(SMALL), None)
  assert metrics['grad_norm'] > 0.1
  steps = jax.tree.leaves(jax.tree.map(lambda a, b: a - b, new.params, state.params))
  norm = np.sqrt(sum(np.sum(np.square(x)) for x in steps))
  np.testing.assert_allclose(norm, 0.01, rtol=1e-3)


def test_learning_rate_schedules():
  linear = dataclasses.replace(
    SMALL, learning_rate=1.0, learning_rate_schedule='linear', learning_rate_decay_steps=4
  )
  assert [float(make_schedule(linear)(t)) for t in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
  assert float(make_schedule(SMALL)(10**6)) == SMALL.learning_rate
  state = sharpened(linear)._replace(learner_steps=jnp.int32(1))
  output = compiled(make_agent(linear), 'update')(state, recorded_unrolls(SMALL), None)
  assert output.metrics['learning_rate'] == 0.75


def test_rmsprop_takes_its_first_step():
  # mean of squares = (1 - decay) g^2, step = lr g / sqrt(that + eps).
  config = dataclasses.replace(
    SMALL, optimizer='rmsprop', rmsprop_decay=0.5, rmsprop_eps=1e-10, learning_rate=0.1
  )
  state = sharpened(config)
  new, _, _ = compiled(make_agent(config), 'update')(state, recorded_unrolls(SMALL), None)
  step = (
    new.params['params']['head']['value']['bias'] - state.params['params']['head']['value']['bias']
  )
  np.testing.assert_allclose(np.abs(step), 0.1 / np.sqrt(0.5), rtol=1e-4)


def test_unroll_geometry():
  agent = make_agent(dataclasses.replace(SMALL, unroll_length=20))
  assert (agent.unroll_rows, agent.unroll_period) == (21, 20)
  assert agent.initial_core_state(3) == {}


@pytest.mark.slow
def test_meshes_of_any_size_do_the_update_of_one_device():
  check_meshes_do_the_update_of_one_device('vtrace', sizes=(4, 6, 7, 8))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'unroll_length': 0}, r'--unroll_length is 0: set it to at least 1\.'),
    ({'torso': 'resnet'}, r"--torso is 'resnet': set it to auto, mlp, nature, impala or minatar\."),
    ({'core': 'gru'}, r"--core is 'gru': set it to none or lstm\."),
    ({'optimizer': 'sgd'}, r"--optimizer is 'sgd': set it to adam or rmsprop\."),
    ({'loss_reduction': 'max'}, r"--loss_reduction is 'max': set it to mean or sum\."),
    ({'learning_rate': -1e-3}, r'--learning_rate is -0\.001: set it to a number above 0\.'),
    ({'vtrace_lambda': 1.5}, r'--vtrace_lambda is 1\.5: set it to a number from 0 to 1\.'),
    ({'discount': float('nan')}, r'--discount is nan: '),
    ({'rho_bar': 0.5}, r'--rho_bar is 0\.5: set it to at least --c_bar, 1\.0\.'),
    ({'entropy_cost': -1.0}, r'--entropy_cost is -1\.0: set it to 0 or more\.'),
    ({'mlp_sizes': (64, 0)}, r'--mlp_sizes is \(64, 0\): '),
    ({'frame_stack': 0}, r'--frame_stack is 0: set it to 1'),
    ({'learning_rate_schedule': 'linear'}, r'--learning_rate_decay_steps is 0: .*linear ends'),
    ({'learning_rate_decay_steps': 9}, r'--learning_rate_decay_steps is 9: .*=linear'),
  ],
)
def test_unusable_options_are_refused_by_name(options, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make_agent(dataclasses.replace(SMALL, **options))
