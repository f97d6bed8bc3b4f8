"""The R2D2 agent as nodes use it: act, replay, burn in, update, shard, configure."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.q_learning.epsilon_greedy import epsilons
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.r2d2.loss import r2d2_loss
from agents.types import FIRST, LAST, MID
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents import r2d2_definition
from tests.agents.delta_q import delta_q
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

SMALL = R2D2Config(
  core='none',
  burn_in=3,
  unroll_length=6,
  n_step=3,
  discount=0.9,
  mlp_sizes=(16,),
  head_size=8,
  learning_rate=1e-2,
)
RECURRENT = dataclasses.replace(SMALL, core='lstm', core_size=8, frame_stack=3)
OTHER_CORES = [dataclasses.replace(RECURRENT, core=core) for core in ('gru', 'lru')]
UNBURNT = dataclasses.replace(SMALL, burn_in=0)
PROBABILITIES = np.float32([0.3, 0.1, 0.05, 0.02, 0.2])


@functools.cache
def make_agent(config):
  return R2D2(config, OBSERVATION_SPEC, ACTION_SPEC)


@functools.cache
def make_state(config, seed=0, target_seed=None):
  """Returns a learner state; its target network differs if it gets a seed."""
  state = compiled(make_agent(config), 'init')(jax.random.key(seed))
  if target_seed is not None:
    state = state._replace(target_params=make_state(config, target_seed).params)
  return state


@functools.cache
def recorded_unrolls(config, seed=0):
  """Returns 5 unrolls by random actions; their Q-values are by `make_state(config, seed)`."""
  return make_unrolls(make_agent(config), make_state(config, seed))


def within_an_episode(unrolls, num_rows):
  """Returns the unrolls with all of the first rows MID."""
  step_type = unrolls.timestep.step_type.at[:, :num_rows].set(MID)
  return unrolls._replace(timestep=unrolls.timestep._replace(step_type=step_type))


def time_major(nest):
  return jax.tree.map(lambda x: np.swapaxes(x, 0, 1), jax.device_get(nest))


def unroll_all(agent, params, unrolls):
  """Returns Q `[L, B, A]` of all rows, burn-in included."""
  rows = time_major((unrolls.timestep, unrolls.action))
  return compiled(agent.network, 'unroll')(params, unrolls.core_state, *rows)[0]


def difference(a, b):
  """The norm of the difference of two nests over that of the second."""
  a, b = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(nest)]) for nest in (a, b))
  return np.linalg.norm(a - b) / np.linalg.norm(b)


def test_unroll_geometry():
  agent = make_agent(SMALL)
  assert (agent.unroll_rows, agent.unroll_period) == (10, 6)
  # The transitions that unrolls 0, 1, 2 of a stream learn from are all from row 3 on, once each.
  learnt = [i * agent.unroll_period + t for i in range(3) for t in range(3, agent.unroll_rows - 1)]
  assert learnt == list(range(3, 21))
  default = R2D2(R2D2Config(), OBSERVATION_SPEC, ACTION_SPEC)
  assert (default.unroll_rows, default.unroll_period) == (121, 80)


@pytest.mark.parametrize(
  ('num_environments', 'index', 'expected'),
  [
    (1, 0, 0.4),
    (4, 0, 0.4),
    (4, 1, 0.04715560318259695),
    (4, 2, 0.005559127278786369),
    (4, 3, 0.00065536),
    (256, 0, 0.4),
    (256, 1, 0.3900642496290835),
    (256, 100, 0.032335207616916815),
    (256, 255, 0.00065536),
  ],
)
def test_epsilons(num_environments, index, expected):
  values = epsilons(num_environments, 0.4, 7.0)
  assert values.shape == (num_environments,) and values.dtype == np.float64
  assert abs(values[index] - expected) < 1e-9
  exploration = make_agent(SMALL).exploration(num_environments)
  assert exploration.dtype == np.float32
  np.testing.assert_allclose(exploration, values, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('config', [SMALL, RECURRENT])
def test_answers_depend_on_their_own_row_only(config):
  agent = make_agent(config)
  check_answers_depend_on_their_own_row_only(agent, make_state(config).params)


def test_act_is_epsilon_greedy():
  agent = make_agent(SMALL)
  params, size = make_state(SMALL).params, 4096
  one = jax.tree.map(lambda x: x[1, :1], random_rows(2, 1))
  timestep = jax.tree.map(lambda x: jnp.repeat(x, size, axis=0), one)
  keys = jax.random.split(jax.random.key(0), size)
  act = compiled(make_agent(SMALL), 'act')

  def frequencies(epsilon):
    answer = act(params, {}, timestep, jnp.full(size, epsilon), keys)
    assert answer.action.dtype == jnp.int32 and answer.action.shape == (size,)
    assert answer.extras['q_values'].shape == (size, NUM_ACTIONS)
    assert answer.extras['q_values'].dtype == jnp.float32
    return np.bincount(answer.action, minlength=NUM_ACTIONS) / size, answer.extras['q_values'][0]

  for epsilon in (0.0, 0.4, 1.0):
    actual, q_values = frequencies(epsilon)
    expected = np.full(NUM_ACTIONS, epsilon / NUM_ACTIONS)
    expected[np.argmax(q_values)] += 1 - epsilon
    np.testing.assert_allclose(actual, expected, atol=0.03 if epsilon else 0)
  assert agent.evaluation_exploration == 1e-3


@pytest.mark.slow
@pytest.mark.parametrize('config', [UNBURNT, RECURRENT, *OTHER_CORES])
def test_replaying_an_unroll_reproduces_the_recorded_q_values_in_every_row(config):
  agent = make_agent(config)
  params, unrolls = make_state(config).params, recorded_unrolls(config)
  assert np.any(unrolls.timestep.step_type[:, :3] == LAST)
  assert np.any(unrolls.timestep.step_type[:, 3:-1] == LAST)
  recorded = time_major(unrolls.extras['q_values'])
  assert recorded.shape == (agent.unroll_rows, 5, NUM_ACTIONS)
  replayed = unroll_all(agent, params, unrolls)
  np.testing.assert_allclose(replayed, recorded, rtol=0, atol=1e-5)
  suffix = compiled(make_agent(config), 'suffix_q_values')(params, unrolls)
  np.testing.assert_allclose(suffix, recorded[config.burn_in :], rtol=0, atol=1e-5)
  np.testing.assert_allclose(delta_q(recorded, replayed), 0.0, atol=1e-4)

  if config.core != 'none':
    zeros = unrolls._replace(core_state=agent.initial_core_state(5))
    delta = delta_q(recorded, unroll_all(agent, params, zeros))
    fresh = np.asarray(unrolls.timestep.step_type[:, 0] == FIRST)
    assert fresh.sum() < 4 and np.all(delta[0, ~fresh] > 1e-2)
    # And after an episode has begun inside the unroll there is nothing left to be wrong about.
    begun = np.cumsum(time_major(unrolls.timestep.step_type) == FIRST, axis=0) > 0
    np.testing.assert_allclose(np.where(begun, delta, 0.0), 0.0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize('config', [UNBURNT, RECURRENT])
def test_update_is_the_definition(config):
  agent = make_agent(config)
  state, unrolls = make_state(config, target_seed=9), recorded_unrolls(config, seed=5)
  # Without burn-in to stop anything in, both networks replay all rows from the stored state.
  q_online, q_target = (unroll_all(agent, p, unrolls) for p in (state.params, state.target_params))
  rows = time_major((unrolls.action, unrolls.timestep))
  suffix = jax.tree.map(lambda x: x[config.burn_in :], (q_online, q_target, *rows))
  errors = r2d2_definition.td_errors(config, *suffix)
  update = compiled(make_agent(config), 'update')
  for probabilities in (PROBABILITIES, None):
    output = update(state, unrolls, probabilities)
    uniform = np.ones(5) if probabilities is None else PROBABILITIES.astype(np.float64)
    loss = r2d2_definition.loss(errors, uniform, 0.6)
    np.testing.assert_allclose(output.metrics['loss'], loss, rtol=1e-4)
    expected = r2d2_definition.priorities(config, errors)
    np.testing.assert_allclose(output.priorities, expected, rtol=1e-4)
    assert output.priorities.dtype == jnp.float32 and output.priorities.shape == (5,)


@pytest.mark.slow
@pytest.mark.parametrize(
  'config', [RECURRENT, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHER_CORES)]
)
def test_no_gradient_flows_into_burn_in(config):
  agent, state = make_agent(config), make_state(config, target_seed=9)
  # The state after burn-in matters to the suffix.
  unrolls = within_an_episode(recorded_unrolls(config), 5)
  rows = time_major((unrolls.timestep, unrolls.action))
  prefix, suffix = (jax.tree.map(lambda x, s=s: x[s], rows) for s in (np.s_[:3], np.s_[3:]))

  unroll = jax.jit(agent.network.unroll)

  def burnt_in(params):
    return unroll(params, unrolls.core_state, *prefix)[1]

  constant = burnt_in(state.params)
  q_target, _ = unroll(state.target_params, burnt_in(state.target_params), *suffix)

  def loss(params, through):
    q_online, _ = unroll(params, burnt_in(params) if through else constant, *suffix)
    arguments = (config, q_online, q_target, suffix[1], suffix[0], jnp.ones(5))
    return r2d2_loss(*arguments)[0]

  gradient = jax.jit(jax.grad(loss), static_argnums=1)
  expected = gradient(state.params, False)
  actual, _ = jax.jit(jax.grad(agent.loss, has_aux=True))(
    state.params, state.target_params, unrolls, None
  )
  assert difference(actual, expected) < 1e-5
  assert difference(gradient(state.params, True), expected) > 1e-3
  metrics = compiled(make_agent(config), 'update')(state, unrolls, None).metrics
  np.testing.assert_allclose(metrics['grad_norm'], optax.tree.norm(expected), rtol=1e-5)


@pytest.mark.slow
def test_burn_in_rows_reach_the_loss_through_the_core_only():
  def updated(config, burn_in_only):
    state = make_state(config, target_seed=9)
    unrolls = within_an_episode(recorded_unrolls(config), 5)
    rows = np.s_[:, :3] if burn_in_only else np.s_[:, :4]
    changed = unrolls._replace(
      action=unrolls.action.at[rows].set(3 - unrolls.action[rows]),
      timestep=unrolls.timestep._replace(
        reward=unrolls.timestep.reward.at[rows].add(1.0),
        observation=unrolls.timestep.observation.at[rows].add(1.0),
      ),
    )
    update = compiled(make_agent(config), 'update')
    a, b = (update(state, u, PROBABILITIES) for u in (unrolls, changed))
    return difference((a.state.params, a.priorities), (b.state.params, b.priorities))

  assert updated(SMALL, burn_in_only=True) == 0.0
  assert updated(SMALL, burn_in_only=False) > 1e-4
  assert updated(RECURRENT, burn_in_only=True) > 1e-6


@pytest.mark.slow
def test_replay_with_the_zero_state_forgets_what_was_played_before_the_unroll():
  unrolls = within_an_episode(recorded_unrolls(RECURRENT), 10)
  zero = make_agent(dataclasses.replace(RECURRENT, replay_state='zero'))
  params = make_state(RECURRENT).params
  stored = compiled(make_agent(RECURRENT), 'suffix_q_values')
  actual = compiled(zero, 'suffix_q_values')(params, unrolls)
  begun = unrolls._replace(core_state=zero.initial_core_state(5))
  np.testing.assert_array_equal(actual, stored(params, begun))
  assert difference(actual, stored(params, unrolls)) > 1e-3


def test_masked_content_changes_no_update():
  state, unrolls = make_state(RECURRENT, target_seed=9), recorded_unrolls(RECURRENT)
  last = unrolls.timestep.step_type == LAST
  first = unrolls.timestep.step_type == FIRST
  assert np.sum(last[:, 3:-1]) > 2
  timestep = unrolls.timestep._replace(
    reward=jnp.where(first, 50.0, unrolls.timestep.reward),
    discount=jnp.where(first, 0.3, unrolls.timestep.discount),
  )
  action = jnp.where(last, 3 - unrolls.action, unrolls.action).at[:, -1].set(0)
  changed = unrolls._replace(timestep=timestep, action=action)
  update = compiled(make_agent(RECURRENT), 'update')
  outputs = [update(state, u, PROBABILITIES) for u in (unrolls, changed)]
  jax.tree.map(np.testing.assert_array_equal, *outputs)


@pytest.mark.parametrize('config', [SMALL, RECURRENT])
def test_initial_priorities_are_those_of_an_update_without_lag(config):
  state, unrolls = make_state(config), recorded_unrolls(config)
  initial_priorities = compiled(make_agent(config), 'initial_priorities')
  initial = initial_priorities(unrolls)
  assert (
    initial.shape == (5,) and initial.dtype == jnp.float32 and len(set(map(float, initial))) == 5
  )
  priorities = compiled(make_agent(config), 'update')(state, unrolls, None).priorities
  np.testing.assert_allclose(initial, priorities, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(initial_priorities(unrolls._replace(core_state=None)), initial)


def test_agents_of_queues_have_no_initial_priorities():
  agent = VTrace(VTraceConfig(), OBSERVATION_SPEC, ACTION_SPEC)
  assert agent.initial_priorities(None) is None


@pytest.mark.slow
def test_target_network_is_copied_once_a_period():
  agent = make_agent(dataclasses.replace(SMALL, target_update_period=3))
  state = jax.jit(agent.init)(jax.random.key(0))
  unrolls = recorded_unrolls(SMALL)
  expected = jax.device_get(state.params)
  jax.tree.map(np.testing.assert_array_equal, state.target_params, expected)
  update = jax.jit(agent.update, donate_argnums=0)
  for step in range(1, 8):
    state = update(state, unrolls, PROBABILITIES).state
    params = jax.device_get(state.params)
    assert difference(params, expected) > 1e-4
    if step % 3 == 0:
      expected = params
    jax.tree.map(np.testing.assert_array_equal, state.target_params, expected)
  assert state.learner_steps == 7 and state.learner_steps.dtype == jnp.int32


def test_update_reports():
  state = make_state(RECURRENT)._replace(learner_steps=jnp.int32(10))
  unrolls = recorded_unrolls(RECURRENT)
  # Burn-in rows, here much older, do not count.
  versions = jnp.full_like(unrolls.policy_version, 4).at[:, :3].set(-1000).at[0, 3].set(-3)
  unrolls = unrolls._replace(policy_version=versions)
  metrics = compiled(make_agent(RECURRENT), 'update')(state, unrolls, PROBABILITIES).metrics
  assert all(x.shape == () and np.isfinite(x) for x in metrics.values())
  assert metrics['policy_lag_max'] == 13.0
  np.testing.assert_allclose(metrics['policy_lag_mean'], 6 + 7 / (5 * 7), rtol=1e-6)
  weights = (0.02 / PROBABILITIES) ** 0.6
  np.testing.assert_allclose(metrics['importance_weight_mean'], weights.mean(), rtol=1e-5)
  np.testing.assert_allclose(metrics['importance_weight_min'], weights.min(), rtol=1e-5)


def test_gradients_are_clipped_by_global_norm_after_they_are_measured():
  # With a large epsilon Adam's first step is the gradient times learning_rate / eps.
  config = dataclasses.replace(SMALL, adam_eps=1e3, learning_rate=1e3, max_gradient_norm=0.01)
  state = make_state(config)
  output = compiled(make_agent(config), 'update')(state, recorded_unrolls(SMALL), None)
  assert output.metrics['grad_norm'] > 0.1
  step = optax.tree.norm(jax.tree.map(jnp.subtract, output.state.params, state.params))
  np.testing.assert_allclose(step, 0.01, rtol=1e-3)


@pytest.mark.parametrize('clip', [True, False])
def test_the_core_sees_rewards_as_the_config_says(clip):
  agent = make_agent(dataclasses.replace(RECURRENT, clip_reward_input=clip))
  params, core_state = make_state(RECURRENT).params, agent.initial_core_state(2)
  timestep = jax.tree.map(lambda x: jnp.repeat(x[0, :1], 2, axis=0), random_rows(1, 1))
  timestep = timestep._replace(step_type=jnp.full(2, MID), reward=jnp.float32([1.0, 5.0]))
  q_values, _ = jax.jit(agent.network.step)(params, core_state, timestep)
  assert np.allclose(q_values[0], q_values[1], atol=1e-7) == clip
  assert VTraceConfig().clip_reward_input and not R2D2Config().clip_reward_input


@pytest.mark.slow
def test_eight_devices_do_the_update_of_one():
  check_meshes_do_the_update_of_one_device('r2d2', sizes=(8,))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'burn_in': -1}, r'--burn_in is -1: set it to 0 or more\.'),
    ({'unroll_length': 0}, r'--unroll_length is 0: set it to 1 or more\.'),
    ({'n_step': 0}, r'--n_step is 0: set it to 1 or more\.'),
    ({'n_step': 7}, r'--n_step is 7: set it to at most --unroll_length, 6\.'),
    ({'target_update_period': 0}, r'--target_update_period is 0: set it to 1 or more\.'),
    ({'head_size': 0}, r'--head_size is 0: set it to 1 or more\.'),
    ({'core_size': 0}, r'--core_size is 0: set it to 1 or more\.'),
    ({'core': 'rnn'}, r"--core is 'rnn': set it to none, lstm, gru or lru\."),
    ({'discount': float('nan')}, r'--discount is nan: set it to a finite number\.'),
    ({'priority_eta': 1.5}, r'--priority_eta is 1\.5: set it to a number from 0 to 1\.'),
    ({'importance_exponent': -0.1}, r'--importance_exponent is -0\.1: '),
    ({'epsilon_base': 2.0}, r'--epsilon_base is 2\.0: set it to a number from 0 to 1\.'),
    ({'evaluation_epsilon': -1.0}, r'--evaluation_epsilon is -1\.0: '),
    ({'epsilon_alpha': -1.0}, r'--epsilon_alpha is -1\.0: set it to 0 or more\.'),
    ({'priority_floor': 0.0}, r'--priority_floor is 0\.0: set it to a number above 0\.'),
    ({'learning_rate': 0.0}, r'--learning_rate is 0\.0: set it to a number above 0\.'),
    ({'rescale_epsilon': -1e-3}, r'--rescale_epsilon is -0\.001: set it to 0 or more\.'),
    ({'max_gradient_norm': -1.0}, r'--max_gradient_norm is -1\.0: set it to 0 or more\.'),
  ],
)
def test_unusable_options_are_rejected_by_name(options, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make_agent(dataclasses.replace(SMALL, **options))
