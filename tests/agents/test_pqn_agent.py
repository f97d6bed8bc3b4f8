"""The PQN agent as nodes use it: act, explore, replay stored states, update, configure."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.axes import swapped
from agents.pqn.agent import PQN
from agents.pqn.config import PQNConfig
from agents.q_learning.values import select
from agents.types import LAST
from nodes.inference.layout import layout
from nodes.inference.slots import assign
from tests.agents.recording import (
  ACTION_SPEC,
  CONTINUOUS_ACTION_SPEC,
  NUM_ACTIONS,
  OBSERVATION_SPEC,
  check_answers_depend_on_their_own_row_only,
  make_unrolls,
  random_rows,
)
from tests.agents.sharding import check_meshes_do_the_update_of_one_device

BATCH_SIZE = 6
SMALL = {'unroll_length': 4, 'mlp_sizes': (16,), 'core_size': 8, 'max_gradient_norm': 0.0}
RECURRENT = {'core': 'lstm', 'frame_stack': 3}
# Adam is plain gradient descent where epsilon is far above every gradient.
PLAIN = {'optimizer': 'adam', 'adam_b1': 0.0, 'adam_eps': 1e6, 'num_minibatches': 1}


class Own(PQN):
  """Its targets are what it predicts already, so that the loss is 0 as long as it replays right."""

  def targets(self, q_values, action, timestep, valid):
    return select(q_values[:-1], action[:-1])


def make_agent(cls=PQN, **options):
  return cls(PQNConfig(**SMALL | options), OBSERVATION_SPEC, ACTION_SPEC)


@functools.cache
def recorded(core='none', frame_stack=1, seed=0):
  """Returns a learner state and unrolls that it has recorded."""
  agent = make_agent(core=core, frame_stack=frame_stack)
  state = jax.jit(agent.init)(jax.random.key(seed))
  unrolls = make_unrolls(agent, state, BATCH_SIZE, seed=7)
  ends = unrolls.timestep.step_type[:, 1:] == LAST
  for discount in (0, 1):  # Terminations and truncations.
    assert np.any(ends & (unrolls.timestep.discount[:, 1:] == discount))
  return state, unrolls


def test_unroll_geometry():
  agent = make_agent()
  assert (agent.unroll_rows, agent.unroll_period) == (5, 4)
  assert agent.initial_core_state(3) == {}


@pytest.mark.slow
@pytest.mark.parametrize('options', [{}, RECURRENT])
def test_answers_depend_on_their_own_row_only(options):
  agent = make_agent(**options)
  check_answers_depend_on_their_own_row_only(agent, jax.jit(agent.init)(jax.random.key(0)).params)


def test_training_environments_explore_each_at_its_own_rate_and_evaluators_are_greedy():
  agent, size = make_agent(), 4096
  params = jax.jit(agent.init)(jax.random.key(0)).params
  one = jax.tree.map(lambda x: x[1, :1], random_rows(2, 1))
  timestep = jax.tree.map(lambda x: jnp.repeat(x, size, axis=0), one)
  keys = jax.random.split(jax.random.key(0), size)
  act = jax.jit(agent.act)
  greedy = act(params, {}, timestep, jnp.full(size, agent.evaluation_exploration), keys)
  assert greedy.action.dtype == jnp.int32 and len(np.unique(greedy.action)) == 1
  assert greedy.extras == {}
  epsilons = np.repeat([0.0, 0.4, 1.0], size)
  thrice = jax.tree.map(lambda x: jnp.concatenate([x] * 3), timestep)
  found = act(params, {}, thrice, jnp.asarray(epsilons), jax.random.split(keys[0], 3 * size))
  for epsilon, actions in zip((0.0, 0.4, 1.0), found.action.reshape(3, size), strict=True):
    expected = np.full(NUM_ACTIONS, epsilon / NUM_ACTIONS)
    expected[greedy.action[0]] += 1 - epsilon
    frequencies = np.bincount(actions, minlength=NUM_ACTIONS) / size
    np.testing.assert_allclose(frequencies, expected, atol=0.03 if epsilon else 0)


@pytest.mark.parametrize('num_replicas', [1, 2])
def test_no_two_environments_of_all_actors_explore_alike(num_replicas):
  """Three actors of four environments in two groups each, and an evaluator."""
  agent = make_agent()
  found = {}
  for replica in range(num_replicas):
    groups = layout(3, 4, 2, eval_envs=2, replica=replica, num_replicas=num_replicas)
    _, (device,) = assign(agent, groups, agent.exploration(12 * num_replicas), 1)
    for spec, first in zip(groups, np.cumsum([0] + [g.num_envs for g in groups]), strict=False):
      own = device.exploration[first : first + spec.num_envs]
      if spec.training:
        ids = spec.first_environment_id + np.arange(spec.num_envs)
        found |= dict(zip(ids.tolist(), own.tolist(), strict=True))
      else:
        np.testing.assert_array_equal(own, 0.0)
  by_id = [found[i] for i in range(12 * num_replicas)]
  assert np.all(np.diff(by_id) < 0)
  np.testing.assert_allclose([by_id[0], by_id[-1]], [0.4, 0.4**8], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
  'options',
  [
    RECURRENT | {'num_minibatches': 3},
    {'num_minibatches': 8},
    {'num_minibatches': 8, 'frame_stack': 3},
  ],
)
def test_every_minibatch_replays_its_own_rows_from_its_own_state(options):
  agent = make_agent(Own, num_epochs=2, learning_rate=1e-30, **options)
  core = options.get('core', 'none')
  state, unrolls = recorded(core, options.get('frame_stack', 1))
  update = jax.jit(agent.update)
  metrics = update(state, unrolls).metrics
  np.testing.assert_allclose(metrics['td_error'], 0.0, atol=1e-5)
  assert metrics['gradient_steps'] == 2 * options['num_minibatches']


@pytest.mark.slow
def test_the_stored_state_is_that_with_which_the_rows_were_played():
  """The actions that it takes greedily from the stored state are those recorded; from zeros, others."""
  agent = make_agent(**RECURRENT)
  state, _ = recorded('lstm', 3)
  # Recorded without exploration: `make_unrolls` explores always, and this acts greedily instead.
  greedy = make_agent(epsilon_base=0.0, **RECURRENT)
  greedy.policy = lambda params, output, *_: (
    jnp.argmax(output, -1).astype(jnp.int32),
    {'q': output},
  )
  unrolls = make_unrolls(greedy, state, BATCH_SIZE, seed=7)
  rows = swapped((unrolls.timestep, unrolls.action))
  unroll = jax.jit(agent.network.unroll)
  replayed, _ = unroll(state.params, unrolls.core_state, *rows)
  np.testing.assert_allclose(replayed, swapped(unrolls.extras['q']), atol=1e-5)
  zeros, _ = unroll(state.params, agent.initial_core_state(BATCH_SIZE), *rows)
  assert np.abs(zeros - replayed).max() > 1e-2


def returns_by_hand(q_values, timestep, config):
  """Returns the lambda-returns `[T, B]`, one row at a time."""
  values = q_values.max(-1)
  num_transitions, batch_size = values.shape[0] - 1, values.shape[1]
  found = np.zeros((num_transitions, batch_size))
  for b in range(batch_size):
    later = values[-1, b]
    for t in reversed(range(num_transitions)):
      if timestep.step_type[t, b] == LAST:
        later = values[t, b]
      else:
        mixed = config.q_lambda * later + (1 - config.q_lambda) * values[t + 1, b]
        reward = config.reward_scale * timestep.reward[t + 1, b]
        if config.max_abs_reward:
          reward = np.clip(reward, -config.max_abs_reward, config.max_abs_reward)
        later = reward + config.discount * timestep.discount[t + 1, b] * mixed
      found[t, b] = later
  return found


@pytest.mark.slow
@pytest.mark.parametrize(
  'core, options',
  [
    ('lstm', {'num_epochs': 1, 'reward_scale': 0.5}),
    ('none', {'num_epochs': 3, 'max_abs_reward': 0.7}),
  ],
)
def test_an_update_on_stale_data_is_the_gradient_steps_done_by_hand(core, options):
  options = {**options, **PLAIN, **(RECURRENT if core == 'lstm' else {})}
  rate = 0.5
  agent = make_agent(learning_rate=rate * PLAIN['adam_eps'], **options)
  config = PQNConfig(**SMALL | options)
  depth = options.get('frame_stack', 1)
  (state, _), (_, unrolls) = recorded(core, depth), recorded(core, depth, seed=1)
  output = jax.jit(agent.update)(state, unrolls)

  timestep, action = jax.device_get(swapped((unrolls.timestep, unrolls.action)))
  valid = timestep.step_type[:-1] != LAST
  run = jax.jit(
    lambda params: agent.network.unroll(params, unrolls.core_state, timestep, action)[0]
  )
  target = returns_by_hand(np.asarray(run(state.params), np.float64), timestep, config)

  @jax.jit
  @jax.grad
  def gradient(params):
    taken = jnp.sum(run(params)[:-1] * jax.nn.one_hot(action[:-1], NUM_ACTIONS), -1)
    return jnp.sum(jnp.where(valid, (taken - target) ** 2 / 2, 0.0)) / valid.sum()

  params = state.params
  for _ in range(config.num_epochs):
    params = jax.tree.map(lambda p, g: p - rate * g, params, gradient(params))
  difference = functools.partial(jax.tree.map, lambda a, b: a - b)
  moved, by_hand = (difference(x, state.params) for x in (output.state.params, params))
  assert max(np.abs(x).max() for x in jax.tree.leaves(by_hand)) > 1e-2
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), moved, by_hand)
  np.testing.assert_allclose(output.metrics['target_value'], target[valid].mean(), atol=1e-5)


@pytest.mark.slow
def test_update_steps_and_reports():
  agent = make_agent(num_epochs=2, num_minibatches=3, learning_rate=1e-3, **RECURRENT)
  state, unrolls = recorded('lstm', 3)
  versions = jnp.zeros_like(unrolls.policy_version).at[0, 0].set(-5)
  unrolls = unrolls._replace(policy_version=versions)
  update = jax.jit(agent.update)
  once, again = update(state, unrolls), update(state, unrolls, None)
  jax.tree.map(np.testing.assert_array_equal, once, again)
  state, priorities, metrics = update(once.state, unrolls)
  assert priorities is None
  assert state.learner_steps == 2 and state.learner_steps.dtype == jnp.int32
  np.testing.assert_array_equal(state.key, once.state.key)
  assert metrics['policy_lag_max'] == 6.0
  assert metrics['gradient_steps'] == 12
  np.testing.assert_allclose(metrics['learning_rate'], 1e-3, rtol=1e-6)
  assert all(x.shape == () and np.isfinite(x) for x in metrics.values())


@pytest.mark.slow
@pytest.mark.parametrize('name', ['pqn', 'pqn_of_transitions'])
def test_eight_devices_do_the_update_of_one_and_move_only_sums(name):
  check_meshes_do_the_update_of_one_device(name, sizes=(8,))


def test_every_layer_of_the_torso_is_normalised():
  params = make_agent(mlp_sizes=(16, 8)).init(jax.random.key(0)).params['params']
  sizes = {name: layer['scale'].shape for name, layer in params['torso'].items() if 'Norm' in name}
  assert sizes == {'LayerNorm_0': (16,), 'LayerNorm_1': (8,)}


def test_minibatches_are_of_transitions_and_with_a_core_of_unrolls():
  assert PQNConfig().samples(6) == (192, 'transitions')
  assert PQNConfig(core='lstm').samples(6) == (6, 'unrolls')
  PQNConfig().check_batch('batch_size', 6, 2, 'device(s)')
  message = r'^--num_minibatches=32 does not divide the 6 unrolls of --batch_size=6 on 2 learner '
  with pytest.raises(ValueError, match=message):
    PQNConfig(core='lstm').check_batch('batch_size', 6, 2, 'device(s)')


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'q_lambda': 1.5}, r'--q_lambda is 1\.5: set it to a number from 0 to 1\.'),
    ({'num_epochs': 0}, r'--num_epochs is 0: set it to 1 or more\.'),
    ({'epsilon_base': 2.0}, r'--epsilon_base is 2\.0: '),
    ({'unroll_length': 0}, r'--unroll_length is 0: set it to 1 or more\.'),
    ({'weight_decay': 0.1}, r'--weight_decay is 0\.1: set it to 0, or use --optimizer=adam\.'),
  ],
)
def test_unusable_options_are_rejected_by_name(options, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make_agent(**options)


def test_continuous_actions_are_rejected():
  with pytest.raises(ValueError, match='this agent takes one discrete action at a time'):
    PQN(PQNConfig(), OBSERVATION_SPEC, CONTINUOUS_ACTION_SPEC)
