"""QT-Opt as nodes use it: act, relabel, update."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.qt_opt.agent import Params, QTOpt
from agents.qt_opt.config import QTOptConfig
from agents.types import LAST
from tests.agents import recording
from tests.agents.recording import CONTINUOUS_ACTION_SPEC, HIGH, LOW, OBSERVATION_SPEC, compiled
from tests.agents.sharding import check_meshes_do_the_update_of_one_device

SMALL = {
  'unroll_length': 3,
  'mlp_sizes': (16,),
  'head_size': 8,
  'reward_scale': 0.5,
  'learning_rate': 1e-2,
  'averaging': 0.5,
  'target_update_period': 3,
  'num_samples': 16,
  'num_elites': 3,
}


@functools.cache
def make_agent(**options):
  return QTOpt(QTOptConfig(**SMALL | options), OBSERVATION_SPEC, CONTINUOUS_ACTION_SPEC)


@functools.cache
def recorded(**options):
  """Returns an agent, a learner state whose target networks differ, and unrolls."""
  agent = make_agent(**options)
  state = compiled(agent, 'init')(jax.random.key(0))
  lagged = compiled(agent, 'init')(jax.random.key(2)).params.lagged
  unrolls = recording.make_unrolls(agent, state, batch_size=8, seed=7)
  ends = unrolls.timestep.step_type[:, 1:] == LAST
  for discount in (0, 1):  # Terminations and truncations.
    assert np.any(ends & (unrolls.timestep.discount[:, 1:] == discount))
  return agent, state._replace(params=state.params._replace(lagged=lagged)), unrolls


def q_values(agent, network, observation, action):
  """Returns Q of `[n, 3, 2]` observations and `[n, 3]` actions of the spec, by hand."""
  torso, head = network['torso']['params']['torso'], network['head']['params']
  (hidden,) = torso.values()
  x = jax.nn.relu(observation.reshape(len(observation), -1) @ hidden['kernel'] + hidden['bias'])
  x = jnp.concatenate([x, (action - LOW) / (HIGH - LOW) * 2 - 1], axis=-1)
  x = jax.nn.relu(x @ head['Dense_0']['kernel'] + head['Dense_0']['bias'])
  return (x @ head['Dense_1']['kernel'] + head['Dense_1']['bias'])[:, 0]


@pytest.mark.slow
def test_targets_are_those_of_the_definition():
  """With one sample the searched action is known: a random one, from the key."""
  agent, state, unrolls = recorded(num_samples=1, num_elites=1, num_iterations=1)
  keys = jax.random.split(jax.random.key(3), 8)
  targets = compiled(agent, 'relabel')(state.params, unrolls, keys)['target']
  assert targets.shape == (8, 4) and targets.dtype == np.float32
  smaller = [0, 0]
  for b in range(8):
    for t in range(3):
      key = jax.random.split(jax.random.split(keys[b], 4)[t + 1], 1)[0]
      point = np.clip(jax.random.normal(key, (1, 3)), -1, 1)
      action = LOW + (point + 1) * (HIGH - LOW) / 2
      observation = unrolls.timestep.observation[b, t + 1][None]
      both = [float(q_values(agent, n, observation, action)[0]) for n in state.params]
      smaller[int(np.argmin(both))] += 1
      row = unrolls.timestep
      expected = 0.5 * row.reward[b, t + 1] + 0.9 * row.discount[b, t + 1] * min(both)
      np.testing.assert_allclose(targets[b, t], expected, rtol=1e-5, atol=1e-6)
  assert min(smaller) > 3  # Each network decides some.


@pytest.mark.slow
def test_the_first_network_chooses_the_action_that_both_value():
  agent, state, unrolls = recorded()
  keys = jax.random.split(jax.random.key(3), 8)
  average, lagged = state.params
  relabel = compiled(agent, 'relabel')
  # A constant lagged network below all values shows that it takes part; above all, the choice.
  zero = jax.tree.map(jnp.zeros_like, lagged)

  def constant(value):
    zero['head']['params']['Dense_1']['bias'] = jnp.full(1, value)
    return relabel(Params(average, zero), unrolls, keys)['target'][:, :-1]

  reward, discount = unrolls.timestep.reward[:, 1:], unrolls.timestep.discount[:, 1:]
  np.testing.assert_allclose(constant(-100.0), 0.5 * reward - 90.0 * discount, rtol=1e-5)
  chosen = constant(100.0)
  swapped = relabel(Params(lagged, zero), unrolls, keys)['target'][:, :-1]
  continues = np.asarray(discount) > 0
  assert not np.allclose(chosen[continues], swapped[continues])
  # No random action is better than the searched one by much.
  observation = unrolls.timestep.observation[:, 1:].reshape(-1, 3, 2)
  action = jax.random.uniform(jax.random.key(0), (len(observation), 3), minval=LOW, maxval=HIGH)
  anything = q_values(agent, average, observation, action).reshape(8, 3)
  values = (chosen - 0.5 * reward) / 0.9
  assert np.mean(np.asarray(values > anything)[continues]) > 0.9


@pytest.mark.slow
def test_an_update_on_relabelled_unrolls_is_one_that_relabels_itself():
  agent, state, unrolls = recorded()
  update = compiled(agent, 'update')
  state = state._replace(learner_steps=jnp.int32(5))
  key = jax.random.fold_in(jax.random.wrap_key_data(state.key), 5)
  extras = compiled(agent, 'relabel')(state.params, unrolls, jax.random.split(key, 8))
  relabelled = update(state, unrolls._replace(extras=extras))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
    relabelled,
    update(state, unrolls),
  )
  assert relabelled.priorities is None


@pytest.mark.slow
def test_the_loss_is_half_the_squared_error_of_transitions_alone():
  agent, state, unrolls = recorded()
  targets = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
  extras = {'target': jnp.asarray(targets)}
  update = compiled(agent, 'update')
  metrics = update(state, unrolls._replace(extras=extras)).metrics
  rows = (
    unrolls.timestep.observation[:, :-1].reshape(-1, 3, 2),
    unrolls.action[:, :-1].reshape(-1, 3),
  )
  errors = q_values(agent, state.online, *rows).reshape(8, 3) - targets[:, :-1]
  valid = np.asarray(unrolls.timestep.step_type[:, :-1] != LAST)
  assert not valid.all()
  np.testing.assert_allclose(
    metrics['loss'], 0.5 * np.mean(np.asarray(errors)[valid] ** 2), rtol=1e-4
  )
  extras['target'] = jnp.where(jnp.pad(valid, ((0, 0), (0, 1))), extras['target'], 1e6)
  masked = update(state, unrolls._replace(extras=extras))
  np.testing.assert_allclose(masked.metrics['loss'], metrics['loss'], rtol=1e-6)


@pytest.mark.slow
def test_cross_entropy_is_that_of_returns_from_0_to_1():
  agent, state, unrolls = recorded(value_loss='cross_entropy')
  keys = jax.random.split(jax.random.key(0), 8)
  targets = compiled(agent, 'relabel')(state.params, unrolls, keys)['target']
  rewards = 0.5 * unrolls.timestep.reward[:, 1:]
  values = (targets[:, :-1] - rewards)[np.asarray(unrolls.timestep.discount[:, 1:] == 1)] / 0.9
  assert np.all((values > 0) & (values < 1))
  metrics = compiled(agent, 'update')(state, unrolls._replace(extras={'target': targets})).metrics
  rows = (
    unrolls.timestep.observation[:, :-1].reshape(-1, 3, 2),
    unrolls.action[:, :-1].reshape(-1, 3),
  )
  p = np.asarray(jax.nn.sigmoid(q_values(agent, state.online, *rows).reshape(8, 3)))
  y = np.clip(targets[:, :-1], 0, 1)
  losses = -y * np.log(p) - (1 - y) * np.log(1 - p)
  valid = np.asarray(unrolls.timestep.step_type[:, :-1] != LAST)
  np.testing.assert_allclose(metrics['loss'], losses[valid].mean(), rtol=1e-4)


@pytest.mark.slow
def test_the_lagged_network_is_the_average_of_one_to_two_periods_ago():
  agent, _, unrolls = recorded()
  state = compiled(agent, 'init')(jax.random.key(0))
  update = compiled(agent, 'update')
  online, averages, average = [state.online], [state.params.average], state.params.average
  for step in range(1, 11):
    state = update(state, unrolls).state
    online.append(state.online)
    average = optax.incremental_update(state.online, average, 0.5)
    averages.append(average)
    check = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(check, state.params.average, average)
    source = max(0, 3 * (step // 3) - 3)
    assert step < 3 or 3 <= step - source < 6
    jax.tree.map(check, state.params.lagged, averages[source])


@pytest.mark.slow
def test_actions_are_within_bounds_random_with_epsilon_and_of_their_own_row_only():
  agent, state, _ = recorded()
  core_state, timestep, _, keys = recording.batch_of_requests(agent, 256)
  act = compiled(agent, 'act')
  greedy, anything = (
    act(state.params, core_state, timestep, jnp.full(256, epsilon), keys).action
    for epsilon in (0.0, 1.0)
  )
  for action in (greedy, anything):
    assert action.dtype == np.float32 and np.all((action >= LOW) & (action <= HIGH))
  np.testing.assert_allclose(anything.mean(0), (LOW + HIGH) / 2, atol=0.1 * np.max(HIGH - LOW))
  values = [
    q_values(agent, state.params.average, timestep.observation, a) for a in (greedy, anything)
  ]
  assert np.mean(np.asarray(values[0] > values[1])) > 0.95
  recording.check_answers_depend_on_their_own_row_only(agent, state.params)
  np.testing.assert_array_equal(agent.exploration(3), np.float32([0.2, 0.2, 0.2]))


@pytest.mark.slow
def test_eight_devices_do_the_update_of_one():
  check_meshes_do_the_update_of_one_device('qt_opt', sizes=(8,))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'core': 'lstm'}, "--core is 'lstm': set it to none"),
    ({'num_elites': 20}, '--num_samples is 16: set it to at least --num_elites, 20'),
    ({'value_loss': 'huber'}, "--value_loss is 'huber': set it to squared or cross_entropy"),
    ({'epsilon': 1.5}, '--epsilon is 1.5: set it to a number from 0 to 1'),
    ({'target_update_period': 0}, '--target_update_period is 0: set it to 1 or more'),
  ],
)
def test_unusable_options_are_rejected_by_name(options, message):
  with pytest.raises(ValueError, match=message):
    make_agent(**options)
