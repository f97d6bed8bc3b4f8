"""The MuZero agent as nodes use it: act, replay, unroll the model, update, reanalyse, configure."""

from __future__ import annotations

import dataclasses
import functools

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.muzero.agent import MuZero, reanalysed
from agents.muzero.categorical import expectation, two_hot
from agents.muzero.config import MuZeroConfig
from agents.muzero.loss import unroll_model
from agents.types import FIRST, LAST
from tests.agents import masked, muzero_definition, r2d2_definition, recording
from tests.agents.recording import (
  ACTION_SPEC,
  NUM_ACTIONS,
  OBSERVATION_SPEC,
  batch_of_requests,
  check_answers_depend_on_their_own_row_only,
  make_unrolls,
)
from tests.agents.sharding import check_meshes_do_the_update_of_one_device

SMALL = MuZeroConfig(
  unroll_length=4,
  num_unroll_steps=2,
  n_step=3,
  discount=0.9,
  num_simulations=3,
  mlp_sizes=(16,),
  hidden_state_size=8,
  head_size=8,
  num_bins=21,
  max_bin=5.0,
  learning_rate=1e-2,
)
STACKED = dataclasses.replace(SMALL, frame_stack=3)
# Targets that are in part reanalysed, of a network that follows; one compilation serves two tests.
CHANGING = dataclasses.replace(
  SMALL, reanalyse_fraction=0.5, target_update_period=2, temperature_decay_steps=4
)
SEARCHED = dataclasses.replace(SMALL, bootstrap='search', search_value='network')
CHOSEN = dataclasses.replace(STACKED, search='puct', num_simulations=8, search_value='chosen')
NESTED = {
  'x': OBSERVATION_SPEC,
  'label': dm_env.specs.DiscreteArray(3, np.int32),
  'action_mask': masked.SPEC['action_mask'],
}
PROBABILITIES = np.float32([0.3, 0.1, 0.05, 0.2])
QUICK = {'xla_backend_optimization_level': 0}  # Compilation is most of the cost.


def nested(observation):
  """Shows an observation `[..., 3, 2]` with a label and a mask that follow from it."""
  found = masked.some_illegal(observation)
  label = (observation[..., 0, 0] > 0).astype(jnp.int32) + (observation[..., 1, 0] > 0)
  return {'x': found['observation'], 'label': label, 'action_mask': found['action_mask']}


@functools.cache
def make_agent(config):
  return MuZero(config, OBSERVATION_SPEC, ACTION_SPEC)


@functools.cache
def compiled(config, method):
  return jax.jit(getattr(make_agent(config), method), compiler_options=QUICK)


@functools.cache
def make_state(config):
  """Returns a learner state whose online and target networks are random, output layers included."""
  return noisy_state(make_agent(config))


def noisy_state(agent):
  """Returns a learner state of an agent; see `make_state`."""
  state = jax.jit(agent.init, compiler_options=QUICK)(jax.random.key(0))

  def noisy(params, seed):
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    noise = (0.5 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True))
    return tree.unflatten([x + n for x, n in zip(leaves, noise, strict=True)])

  return state._replace(
    params=state.params._replace(network=noisy(state.params.network, 1)),
    target_params=noisy(state.params.network, 2),
  )


@functools.cache
def recorded_unrolls(config):
  return make_unrolls(make_agent(config), make_state(config), batch_size=4)


def difference(a, b):
  """The norm of the difference of two nests over that of the second."""
  return float(optax.tree.norm(jax.tree.map(jnp.subtract, a, b)) / optax.tree.norm(b))


def test_every_row_of_a_stream_is_a_start_once_and_has_all_of_its_targets():
  agent = make_agent(SMALL)
  assert (agent.unroll_rows, agent.unroll_period) == (4 + 2 + 3, 4)
  default = MuZero(MuZeroConfig(), OBSERVATION_SPEC, ACTION_SPEC)
  assert (default.unroll_rows, default.unroll_period) == (20 + 5 + 10, 20)
  assert agent.exploration(3).tolist() == [1, 1, 1] and agent.evaluation_exploration == 0.0


@pytest.mark.slow
def test_answers_depend_on_their_own_row_only():
  check_answers_depend_on_their_own_row_only(make_agent(STACKED), make_state(STACKED).params)


@pytest.mark.slow
def test_permuting_a_batch_permutes_its_answers():
  requests, params = batch_of_requests(make_agent(SMALL)), make_state(SMALL).params
  act = compiled(SMALL, 'act')
  answers, order = act(params, *requests), np.random.default_rng(0).permutation(8)
  permuted = act(params, *jax.tree.map(lambda x: x[order], requests))
  # A processor may multiply the rows of one batch in kernels that round differently.
  near = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
  jax.tree.map(lambda a, b: near(a, b[order]), permuted, answers)
  np.testing.assert_array_equal(permuted.action, answers.action[order])
  assert answers.action.dtype == jnp.int32
  assert answers.extras['search_policy'].shape == (8, NUM_ACTIONS)
  np.testing.assert_allclose(np.sum(answers.extras['search_policy'], -1), 1.0, rtol=1e-5)
  assert answers.extras['root_value'].shape == (8,) and len(set(answers.action.tolist())) > 1


@pytest.mark.slow
def test_relabelling_with_the_acting_parameters_and_keys_reproduces_the_stored_targets():
  """With frames, noise, and values of actions that are drawn at a temperature."""
  agent, state = make_agent(CHOSEN), make_state(CHOSEN)
  state = state._replace(params=state.params._replace(temperature=jnp.float32(0.5)))
  length, keys = agent.unroll_rows, jax.random.split(jax.random.key(9), 4)
  acting = jnp.stack([jax.random.split(key, length) for key in keys], axis=1)  # `[L, B]`.
  before = jax.random.split(jax.random.key(0), (3, 4))  # The unrolls start at the third row.
  unrolls = make_unrolls(agent, state, batch_size=4, row_keys=jnp.concatenate([before, acting]))
  assert np.any(unrolls.timestep.step_type[:, 1:] == FIRST)
  relabel = recording.compiled(agent, 'relabel')
  relabelled = relabel(state.params, unrolls, keys)
  for name, recorded in unrolls.extras.items():  # XLA rounds in another order than in `act`.
    np.testing.assert_allclose(relabelled[name], recorded, rtol=1e-5, atol=1e-6)
  assert relabelled.keys() == unrolls.extras.keys()

  other_keys = keys.at[1].set(jax.random.key(8))
  newer = state.params._replace(network=state.target_params)
  for name, stored in unrolls.extras.items():
    changed = ~np.isclose(relabel(state.params, unrolls, other_keys)[name], stored, 1e-5, 1e-6)
    assert np.flatnonzero(np.any(changed, axis=tuple(range(1, stored.ndim)))).tolist() == [1]
    fresh = relabel(newer, unrolls, keys)[name]
    assert fresh.shape == stored.shape and fresh.dtype == stored.dtype
    assert np.mean(np.any(fresh != stored, axis=tuple(range(2, stored.ndim)))) > 0.9


@pytest.mark.slow
def test_a_relabelled_unroll_has_the_priority_and_the_loss_of_its_fresh_targets():
  state, unrolls = make_state(SEARCHED), recorded_unrolls(SEARCHED)
  newer = state.params._replace(network=state.target_params)
  keys = jax.random.split(jax.random.key(4), 4)
  copies = unrolls._replace(extras=compiled(SEARCHED, 'relabel')(newer, unrolls, keys))
  values, policies = (np.asarray(copies.extras[n]) for n in ('root_value', 'search_policy'))
  timestep, errors = jax.device_get(unrolls.timestep), []
  for b in range(4):
    walks = [
      muzero_definition.targets(SEARCHED, timestep, np.float64(values), policies, b, t)[0]
      for t in range(4)
    ]
    errors.append(
      [value - values[b, t] for t, (_, value, _) in enumerate(walks) if value is not None]
    )
  expected = r2d2_definition.priorities(SEARCHED, errors)
  priorities = compiled(SEARCHED, 'initial_priorities')
  np.testing.assert_allclose(priorities(copies), expected, rtol=1e-4)
  assert np.all(np.abs(priorities(copies) / priorities(unrolls) - 1) > 1e-3)
  update = compiled(SEARCHED, 'update')
  losses = [float(update(state, x, PROBABILITIES).metrics['loss']) for x in (unrolls, copies)]
  assert abs(losses[0] - losses[1]) > 1e-3


@pytest.mark.slow
def test_half_of_the_gradient_flows_into_each_state_of_the_dynamics():
  model, network = make_agent(SMALL).model, make_state(SMALL).params.network
  observation, action = jnp.ones((1, 3, 2)), jnp.array([[1, 2]])

  def through(bias, step, halved):
    shifted = jax.tree.map(lambda x: x, network)
    dense = shifted['params']['representation']['Dense_0']
    shifted['params']['representation']['Dense_0'] = {**dense, 'bias': dense['bias'] + bias}
    if halved:
      return unroll_model(model, shifted, observation, action).reward[0, step, 3]
    state = model.apply(shifted, observation, method='represent')
    for t in range(step + 1):
      state, reward = model.apply(shifted, state, action[:, t], method='dynamics')
    return reward[0, 3]

  gradient = jax.jit(jax.grad(through), static_argnums=(1, 2), compiler_options=QUICK)
  for step, share in ((0, 0.5), (1, 0.25)):
    whole = gradient(jnp.zeros(8), step, False)
    assert np.max(np.abs(whole)) > 1e-3
    np.testing.assert_allclose(gradient(jnp.zeros(8), step, True), share * whole, atol=1e-7)


def cross_entropy(logits, labels):
  logits = np.asarray(logits, np.float64)
  return float(np.sum(labels * (np.log(np.sum(np.exp(logits))) - logits)))


@pytest.mark.slow
@pytest.mark.parametrize('config', [SMALL, SEARCHED])
def test_update_is_the_definition(config):
  agent, state, unrolls = make_agent(config), make_state(config), recorded_unrolls(config)
  assert np.any(unrolls.timestep.step_type[:, :5] == LAST)
  rows = unrolls.timestep.observation
  values = unrolls.extras['root_value']
  if config.bootstrap == 'target':
    hidden = agent.model.apply(state.target_params, rows.reshape(-1, 3, 2), method='represent')
    logits = agent.model.apply(state.target_params, hidden, method='predict').value_logits
    values = expectation(config, logits).reshape(values.shape)
  values = np.asarray(values, np.float64)
  arrays = jax.device_get((unrolls.timestep, unrolls.extras['search_policy']))
  raw = PROBABILITIES.min() / PROBABILITIES
  total, priorities = 0.0, []
  unroll = jax.jit(functools.partial(unroll_model, agent.model), compiler_options=QUICK)
  for b in range(4):
    errors = []
    for t in range(4):
      logits = unroll(state.params.network, rows[b, t][None], unrolls.action[b, t : t + 2][None])
      policies, bins, rewards = (x[0] for x in logits)
      if unrolls.timestep.step_type[b, t] != LAST:
        nu = float(expectation(config, bins[0]))
      walked = muzero_definition.targets(config, arrays[0], values, arrays[1], b, t)
      for k, (reward, value, policy) in enumerate(walked):
        loss = 0.0
        if reward is not None:
          loss += cross_entropy(rewards[k - 1], np.asarray(two_hot(config, reward)))
        if value is not None:
          loss += config.value_cost * cross_entropy(bins[k], np.asarray(two_hot(config, value)))
        if policy is not None:
          loss += cross_entropy(policies[k], policy)
        total += raw[b] * loss * (1.0 if k == 0 else 0.5) / 16
      if walked[0][1] is not None:
        errors.append(walked[0][1] - nu)
    priorities.append(errors)
  output = compiled(config, 'update')(state, unrolls, PROBABILITIES)
  np.testing.assert_allclose(output.metrics['loss'], total, rtol=1e-4)
  expected = r2d2_definition.priorities(config, priorities)
  np.testing.assert_allclose(output.priorities, expected, rtol=1e-3)
  assert all(x.shape == () and np.isfinite(x) for x in output.metrics.values())


@pytest.mark.slow
def test_initial_priorities_are_those_of_an_update_without_lag():
  state, unrolls = make_state(SEARCHED), recorded_unrolls(SEARCHED)
  initial = compiled(SEARCHED, 'initial_priorities')(unrolls)
  assert initial.shape == (4,) and initial.dtype == jnp.float32
  priorities = compiled(SEARCHED, 'update')(state, unrolls, PROBABILITIES).priorities
  np.testing.assert_allclose(initial, priorities, rtol=1e-4)


@pytest.mark.slow
def test_parts_of_a_batch_are_updates_of_their_own():
  halves = dataclasses.replace(SMALL, updates_per_batch=2)
  unrolls, state = recorded_unrolls(SMALL), make_state(SMALL)
  ones = np.ones(4, np.float32)
  output = compiled(halves, 'update')(make_state(halves), unrolls, ones)
  priorities = np.zeros(4)
  for i in range(2):
    part = jax.tree.map(lambda x, i=i: x[i::2], unrolls)
    state, priorities[i::2], _ = compiled(SMALL, 'update')(state, part, ones[:2])
  assert difference(output.state.params, state.params) < 1e-5
  np.testing.assert_allclose(output.priorities, priorities, rtol=1e-4)
  assert (int(output.state.learner_steps), int(state.learner_steps)) == (1, 2)
  with pytest.raises(ValueError, match='--updates_per_batch=2 does not divide a batch of 3'):
    make_agent(halves).update(state, jax.tree.map(lambda x: x[:3], unrolls), None)


@pytest.mark.slow
def test_only_reanalysed_unrolls_have_other_policies_than_the_recorded():
  assert reanalysed(4, 0.5) == reanalysed(64, 0.5) == (1, 2)
  assert reanalysed(64, 0.8) == (3, 4) and reanalysed(5, 0.8) == (4, 5)
  assert reanalysed(64, 0.001) == (1, 16) and reanalysed(5, 1.0) == (1, 1)
  assert reanalysed(3, 0.001) == (1, 3)
  update, state = compiled(CHANGING, 'update'), make_state(CHANGING)
  unrolls = recorded_unrolls(SMALL)
  policy = unrolls.extras['search_policy']

  def loss(policy):
    changed = unrolls._replace(extras=unrolls.extras | {'search_policy': policy})
    return float(update(state, changed, PROBABILITIES).metrics['loss'])

  uniform = jnp.full_like(policy, 1 / NUM_ACTIONS)
  fresh, stored = np.array([0, 2]), np.array([1, 3])
  assert loss(policy.at[fresh].set(uniform[fresh])) == loss(policy)
  assert abs(loss(policy.at[stored].set(uniform[stored])) - loss(policy)) > 1e-4


@pytest.mark.slow
def test_target_network_and_temperature_follow_the_learner_steps():
  state, unrolls = make_state(CHANGING), recorded_unrolls(SMALL)
  temperatures, expected = [], state.target_params
  for step in range(1, 4):
    state = compiled(CHANGING, 'update')(state, unrolls, PROBABILITIES).state
    expected = state.params.network if step == 2 else expected
    jax.tree.map(np.testing.assert_array_equal, state.target_params, expected)
    temperatures.append(float(state.params.temperature))
  assert temperatures == [1.0, 0.5, 0.25]


@pytest.mark.slow
def test_eight_devices_do_the_update_of_one():
  check_meshes_do_the_update_of_one_device('muzero', sizes=(8,))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'search': 'alphabeta'}, r"--search is 'alphabeta': set it to gumbel or puct\."),
    ({'model': 'rnn'}, r"--model is 'rnn': set it to auto, mlp, torso, conv or residual\."),
    ({'num_simulations': 0}, r'--num_simulations is 0: set it to a number from 1 to 10000\.'),
    ({'num_bins': 20}, r'--num_bins is 20: set it to an odd number'),
    (
      {'reanalyse_fraction': 1.5},
      r'--reanalyse_fraction is 1\.5: set it to a number from 0 to 1\.',
    ),
    (
      {'reanalyse_fraction': 0.5, 'bootstrap': 'search'},
      r"--bootstrap is 'search': set it to target with --reanalyse_fraction",
    ),
    ({'weight_decay': -1.0}, r'--weight_decay is -1\.0: set it to 0 or more\.'),
    ({'optimizer': 'rmsprop'}, r'--weight_decay is 0\.0001: set it to 0, or use --optimizer=adam'),
    ({'max_bin': 0.0}, r'--max_bin is 0\.0: set it to a number above 0\.'),
  ],
)
def test_unusable_options_are_rejected_by_name(options, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make_agent(dataclasses.replace(SMALL, **options))


@pytest.mark.slow
def test_actions_that_a_mask_excludes_are_in_no_search_and_no_fresh_target():
  config = dataclasses.replace(STACKED, reanalyse_fraction=1.0)
  agent = MuZero(config, NESTED, ACTION_SPEC)
  state = noisy_state(agent)
  unrolls = make_unrolls(agent, state, batch_size=4, show=nested)
  legal = np.asarray(unrolls.timestep.observation['action_mask']) != 0
  rows = legal.any(-1) & ~legal.all(-1)
  assert rows.any()
  chosen = np.take_along_axis(legal, np.asarray(unrolls.action)[..., None], -1)[..., 0]
  assert chosen[rows].all()
  relabel = jax.jit(agent.relabel, compiler_options=QUICK)
  fresh = relabel(state.params, unrolls, jax.random.split(jax.random.key(5), 4))
  for policy in (unrolls.extras['search_policy'], fresh['search_policy']):
    assert not np.asarray(policy)[rows][~legal[rows]].any()
    np.testing.assert_allclose(np.sum(policy, -1), 1.0, rtol=1e-5)
  output = jax.jit(agent.update, compiler_options=QUICK)(state, unrolls)
  assert jax.tree.all(jax.tree.map(lambda x: bool(np.isfinite(x).all()), output))


def test_a_model_of_images_rejects_several_arrays():
  with pytest.raises(
    ValueError, match=r'--model=conv needs one image .* label, x: use --model=auto'
  ):
    MuZero(dataclasses.replace(SMALL, model='conv'), NESTED, ACTION_SPEC)


@pytest.mark.slow
def test_values_depend_on_every_array_of_an_observation_and_on_no_mask():
  agent = MuZero(SMALL, NESTED, ACTION_SPEC)
  state = noisy_state(agent)
  rows = nested(jax.random.normal(jax.random.key(2), (3, 3, 2)))
  represent = jax.jit(
    lambda seen: agent.model.apply(state.params.network, seen, method='represent')
  )
  seen = {name: part for name, part in rows.items() if name != 'action_mask'}
  first = represent(seen)
  assert first.shape == (3, SMALL.hidden_state_size)
  for other in ({'x': -seen['x']}, {'label': 2 - seen['label']}):
    assert not np.allclose(represent(seen | other), first)
