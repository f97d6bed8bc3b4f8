"""Normalised observations and rewards in the agents: act, replay, update, shard, refuse."""

from __future__ import annotations

import dataclasses
import itertools

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.actor_critic import normalization
from agents.networks import statistics
from agents.networks.statistics import OBSERVATIONS, RETURNS
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.types import FIRST, Unroll
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.recording import (
  ACTION_SPEC,
  OBSERVATION_SPEC,
  check_answers_depend_on_their_own_row_only,
  make_unrolls,
  play,
  random_rows,
)
from tests.agents.sharding import check_meshes_do_the_update_of_one_device

T, B = 6, 5
SMALL = {'unroll_length': T, 'mlp_sizes': (16,), 'core_size': 8, 'discount': 0.9}
# Epsilons at which Adam does not blow rounding errors up.
VTRACE = VTrace, VTraceConfig(**SMALL, adam_eps=1e-3)
PPO_ = PPO, PPOConfig(**SMALL, adam_eps=1e-3, num_minibatches=5, num_epochs=2)
AGENTS = {'vtrace': VTRACE, 'ppo': PPO_}
BOTH = {'normalize_observations': True, 'normalize_rewards': True}

agents = pytest.mark.parametrize('name', AGENTS)


def make_agent(name, **options):
  constructor, config = AGENTS[name]
  return constructor(dataclasses.replace(config, **options), OBSERVATION_SPEC, ACTION_SPEC)


def badly_scaled(rows):
  return rows._replace(observation=100.0 + 20.0 * rows.observation, reward=50.0 * rows.reward)


def stream(agent, params, number, batch_size=B):
  """Returns successive unrolls of environments that `params` play, which share a row each."""
  timesteps = badly_scaled(random_rows(number * T + 1, batch_size))
  answers, states = play(agent, params, timesteps, jnp.ones(batch_size))
  versions = jnp.zeros(timesteps.step_type.shape, jnp.int32)
  rows = jax.tree.map(
    lambda x: jnp.swapaxes(x, 0, 1), (timesteps, answers.action, answers.extras, versions)
  )
  unrolls = []
  for t in range(0, number * T, T):
    part = jax.tree.map(lambda x, t=t: x[:, t : t + T + 1], rows)
    unrolls.append(Unroll(*part, core_state=states[t], environment_id=jnp.arange(batch_size)))
  return timesteps, unrolls


def with_statistics(agent):
  """Returns a state whose statistics fit `badly_scaled` rows, more or less."""
  state = jax.jit(agent.init)(jax.random.key(0))
  logits = state.params['params']['head']['logits']
  logits['kernel'] = 100.0 * logits['kernel']
  found = {
    OBSERVATIONS: {'mean': jnp.full((3, 2), 90.0), 'variance': jnp.full((3, 2), 500.0)},
    RETURNS: {'mean': jnp.float32(3.0), 'variance': jnp.float32(900.0)},
  }
  for name in found.keys() & state.params.keys():
    state.params[name] = {'count': jnp.float32(20.0), **found[name]}
  return state


def close(actual, expected, atol=1e-6):
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol), actual, expected
  )


@agents
def test_only_the_options_add_to_the_parameters_and_nothing_to_the_optimizers_state(name):
  key = jax.random.key(0)
  off, on = (jax.jit(make_agent(name, **options).init)(key) for options in ({}, BOTH))
  assert off.params.keys() == {'params'}
  assert on.params.keys() == {'params', OBSERVATIONS, RETURNS}
  close(on.params['params'], off.params['params'], atol=0)
  assert jax.tree.structure(on.opt_state) == jax.tree.structure(off.opt_state)
  assert make_agent(name, normalize_observations=True).initial_core_state(2) == {}


@pytest.mark.slow
@agents
def test_statistics_are_those_of_every_row_once(name):
  agent = make_agent(name, **BOTH)
  state = jax.jit(agent.init)(jax.random.key(0))
  timesteps, unrolls = stream(agent, state.params, 4)
  update = jax.jit(agent.update)
  for batch in unrolls:
    state = update(state, batch).state
  # All but the row that the last unroll bootstraps from; LAST and FIRST rows too.
  observed = np.asarray(timesteps.observation[:-1], np.float64)
  found = state.params[OBSERVATIONS]
  assert found['count'] == 4 * T * B
  np.testing.assert_allclose(found['mean'], observed.mean((0, 1)), rtol=1e-5)
  np.testing.assert_allclose(found['variance'], observed.var((0, 1)), rtol=1e-4)
  # Returns of the rows that have a reward, by hand.
  returns, so_far = [], np.zeros(B)
  for row in range(1, 4 * T + 1):
    started = np.asarray(timesteps.step_type[row]) == FIRST
    so_far = np.where(started, 0.0, 0.9 * so_far + np.asarray(timesteps.reward[row], np.float64))
    returns += list(so_far[~started])
  found = state.params[RETURNS]
  assert found['count'] == len(returns) < 4 * T * B
  np.testing.assert_allclose(found['mean'], np.mean(returns), rtol=1e-4, atol=1e-3)
  np.testing.assert_allclose(found['variance'], np.var(returns), rtol=1e-4)


@pytest.mark.slow
def test_replaying_an_unroll_reproduces_the_recorded_logits():
  agent = make_agent('vtrace', **BOTH, core='lstm', frame_stack=3)
  state = with_statistics(agent)
  _, (_, unrolls) = stream(agent, state.params, 2)
  timestep, action = jax.tree.map(
    lambda x: jnp.swapaxes(x, 0, 1), (unrolls.timestep, unrolls.action)
  )
  output, _ = jax.jit(agent.network.unroll)(state.params, unrolls.core_state, timestep, action)
  recorded = jnp.swapaxes(unrolls.extras['behaviour_logits'], 0, 1)
  assert np.std(recorded) > 0.1
  np.testing.assert_allclose(output.logits, recorded, rtol=0, atol=1e-4)
  update = jax.jit(agent.update)
  state, _, metrics = update(state, unrolls)
  np.testing.assert_allclose(metrics['behaviour_kl'], 0.0, atol=1e-5)
  # From now on the same rows are stale.
  assert abs(update(state, unrolls).metrics['behaviour_kl']) > 1e-4


@pytest.mark.slow
@agents
@pytest.mark.parametrize('new', [False, True])
def test_an_update_is_that_of_observations_normalised_by_hand(name, new):
  on, off = (
    make_agent(name, normalize_observations=True, core='lstm'),
    make_agent(name, core='lstm'),
  )
  state = jax.jit(on.init)(jax.random.key(0)) if new else with_statistics(on)
  _, (_, unrolls) = stream(on, state.params, 2)
  before = state.params[OBSERVATIONS]
  if new:  # The first batch is learned with its own statistics.
    before = statistics.merged(before, unrolls.timestep.observation[:, :-1])
  by_hand = jnp.clip(
    (unrolls.timestep.observation - before['mean']) / jnp.sqrt(before['variance']), -10, 10
  )
  plain = unrolls._replace(timestep=unrolls.timestep._replace(observation=by_hand))
  weights = {'params': state.params['params']}
  expected = jax.jit(off.update)(state._replace(params=weights), plain)
  actual = jax.jit(on.update)(state, unrolls)
  # The weights, the optimizer's state and every metric, the norm of the gradient among them.
  close(actual.state.params['params'], expected.state.params['params'], atol=1e-5)
  close(actual.state.opt_state, expected.state.opt_state, atol=1e-5)
  for metrics in (actual.metrics, expected.metrics):
    metrics.pop('rho_clipped', None)  # Whether a ratio of 1 exceeds 1 is up to rounding.
  close(actual.metrics, expected.metrics, atol=1e-4)
  moved = actual.state.params['params']['torso']['Dense_0']['kernel']
  assert np.abs(moved - weights['params']['torso']['Dense_0']['kernel']).max() > 1e-6


@pytest.mark.slow
@agents
def test_an_update_is_that_of_rewards_divided_by_hand(name):
  on, off = make_agent(name, normalize_rewards=True), make_agent(name)
  state = with_statistics(on)
  _, (_, unrolls) = stream(on, state.params, 2)
  returns = normalization.discounted_returns(unrolls, 0.9)[:, 1:]
  valid = unrolls.timestep.step_type[:, 1:] != FIRST
  after = statistics.merged(state.params[RETURNS], returns, valid)
  deviation = np.sqrt(after['variance'])
  assert 10.0 < deviation < 200.0
  reward = jnp.clip(unrolls.timestep.reward / deviation, -10, 10)
  plain = unrolls._replace(timestep=unrolls.timestep._replace(reward=reward), core_state={})
  weights = {'params': state.params['params']}
  expected = jax.jit(off.update)(state._replace(params=weights), plain)
  actual = jax.jit(on.update)(state, unrolls)
  close(actual.state.params['params'], expected.state.params['params'], atol=1e-5)
  close(actual.state.params[RETURNS], after)
  np.testing.assert_allclose(actual.metrics.pop('return_std'), deviation, rtol=1e-5)
  close(actual.metrics, expected.metrics, atol=1e-4)


@pytest.mark.slow
@agents
def test_the_scale_of_rewards_does_not_matter_once_they_are_normalised(name):
  agent = make_agent(name, normalize_rewards=True)
  state = jax.jit(agent.init)(jax.random.key(0))
  _, (unrolls, _) = stream(agent, state.params, 2)
  larger = unrolls._replace(
    timestep=unrolls.timestep._replace(reward=1000.0 * unrolls.timestep.reward),
    core_state=jax.tree.map(lambda x: 1000.0 * x, unrolls.core_state),
  )
  update = jax.jit(agent.update)
  results = [update(state, batch) for batch in (unrolls, larger)]
  close(*(r.state.params['params'] for r in results), atol=1e-5)
  close(*(r.metrics['baseline_loss'] for r in results), atol=1e-5)


def test_the_first_reward_of_a_run_is_scaled_by_itself():
  """One reward in many rows, before which the deviation is 0."""
  agent = make_agent('vtrace', **BOTH)
  state = jax.jit(agent.init)(jax.random.key(0))
  _, (unrolls, _) = stream(agent, state.params, 2)
  update = jax.jit(agent.update)
  none = jnp.zeros_like(unrolls.timestep.reward)
  for reward in (none, none.at[0, 3].set(1e6)):
    batch = unrolls._replace(timestep=unrolls.timestep._replace(reward=reward))
    state, _, metrics = update(state, batch)
    assert all(np.isfinite(x) for x in metrics.values())
  assert abs(metrics['target_value']) < 1.0


@pytest.mark.slow
def test_the_core_state_carries_the_discounted_return_of_each_environment():
  agent = make_agent('vtrace', normalize_rewards=True, core='lstm')
  params = jax.jit(agent.init)(jax.random.key(0)).params
  _, unrolls = stream(agent, params, 3)
  for batch, following in itertools.pairwise(unrolls):
    # The state before row 0 of the next unroll is that after row T - 1 of this one.
    returns = normalization.discounted_returns(batch, 0.9)
    held = following.core_state[normalization.DISCOUNTED_RETURN]
    np.testing.assert_allclose(held, returns[:, -2], rtol=1e-5)
    assert np.abs(held).max() > 1.0
  check_answers_depend_on_their_own_row_only(agent, params)


@pytest.mark.slow
def test_minibatches_may_be_of_transitions():
  agent = make_agent('ppo', **BOTH, minibatch_of='transitions')
  state = with_statistics(agent)
  unrolls = make_unrolls(agent, state)
  state, _, metrics = jax.jit(agent.update)(state, unrolls)
  assert state.params[OBSERVATIONS]['count'] == 20 + B * T
  assert all(np.isfinite(x) for x in metrics.values())


@pytest.mark.slow
@pytest.mark.parametrize(
  'name', [pytest.param('vtrace_normalized', marks=pytest.mark.nightly), 'ppo_normalized']
)
def test_eight_devices_do_the_update_of_one(name):
  check_meshes_do_the_update_of_one_device(name, sizes=(8,))


@agents
def test_bytes_are_rejected_by_name(name):
  constructor, config = AGENTS[name]
  images = dm_env.specs.Array((84, 84), np.uint8)
  constructor(config, images, ACTION_SPEC)
  config = dataclasses.replace(config, normalize_observations=True)
  with pytest.raises(ValueError, match=r'^--normalize_observations .* uint8.*: leave it out\.$'):
    constructor(config, images, ACTION_SPEC)
