"""Observations that are nests: a torso for each leaf, statistics of floats, and learning."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from agents import nests
from agents.axes import swapped
from agents.networks import nest_torso, observation_statistics, statistics, torsos
from agents.networks.config import NetworkConfig
from agents.networks.frame_stack import frames_before_rows, stack_frames
from tests.agents.recording import random_rows
from tests.agents.small_agents import SMALL_AGENTS, make_agent, recorded

SPEC = {
  'image': specs.Array((5, 4, 2), np.uint8),
  'goal': (specs.DiscreteArray(3, np.int32), specs.Array((), np.float32)),
  'vector': specs.Array((3, 2), np.float32),
}


def show(observation):
  """Returns a nest of `SPEC` for observations float32 `[..., 3, 2]`."""
  image = jnp.tile(observation[..., :1, None, :], (5, 4, 1)) * 20 + 100
  label = (observation[..., 0, 1] > 0).astype(jnp.int32) + 1
  return {
    'image': image.astype(jnp.uint8),
    'goal': (label, observation[..., 1, 1]),
    'vector': observation,
  }


@functools.cache
def torso_and_params():
  torso = nest_torso.make_torso(NetworkConfig(mlp_sizes=(7,), hidden_size=6), SPEC)
  rows = show(random_rows(4, 1).observation[:, 0])
  return torso, jax.jit(torso.init)(jax.random.key(0), rows)['params'], rows


@pytest.mark.slow
def test_each_leaf_has_the_torso_of_its_shape_and_one_layer_joins_them():
  torso, params, rows = torso_and_params()
  parts = [
    torsos.MLP((7,)).apply(
      {'params': params['leaves_goal.0']['torso']}, jax.nn.one_hot(rows['goal'][0], 3)
    ),
    torsos.MLP((7,)).apply({'params': params['leaves_goal.1']}, rows['goal'][1]),
    torsos.MinAtar(6).apply({'params': params['leaves_image']}, rows['image']),
    torsos.MLP((7,)).apply({'params': params['leaves_vector']}, rows['vector']),
  ]
  joint = params['joint']['Dense_0']
  expected = jax.nn.relu(jnp.concatenate(parts, -1) @ joint['kernel'] + joint['bias'])
  assert joint['kernel'].shape == (7 + 7 + 6 + 7, 6)
  np.testing.assert_allclose(torso.apply({'params': params}, rows), expected, rtol=1e-5, atol=1e-6)


def test_a_label_is_one_hot_alone_too():
  torso = nest_torso.make_torso(NetworkConfig(mlp_sizes=(7,)), SPEC['goal'][0])
  params = torso.init(jax.random.key(0), np.int32([0]))
  assert params['params']['torso']['Dense_0']['kernel'].shape == (3, 7)


def test_a_convolutional_torso_is_that_of_the_images():
  config = NetworkConfig(torso='impala', mlp_sizes=(7,))
  leaves = nest_torso.make_torso(config, SPEC).leaves
  assert isinstance(leaves['image'], torsos.Impala) and isinstance(leaves['goal.1'], torsos.MLP)
  with pytest.raises(
    ValueError, match=r'--torso=nature fits no part .* vector \[3, 2\]: use --tor'
  ):
    nest_torso.make_torso(NetworkConfig(torso='nature'), SPEC)


@pytest.mark.slow
def test_floats_of_a_nest_are_normalised_by_their_own_statistics():
  rows = jax.tree.map(lambda x: x[:, :, None].swapaxes(1, 2), show(random_rows(50, 3).observation))
  rows = jax.tree.map(lambda x: x[:, 0], rows)
  found = observation_statistics.merged(observation_statistics.initial(SPEC), rows)
  assert found.keys() == {'vector', 'goal/1'}
  normalized = observation_statistics.normalized(found, rows)
  single = statistics.merged(statistics.initial((3, 2)), rows['vector'])
  np.testing.assert_array_equal(normalized['vector'], statistics.normalized(single, rows['vector']))
  np.testing.assert_allclose(np.mean(normalized['goal'][1]), 0.0, atol=1e-5)
  np.testing.assert_allclose(np.std(normalized['goal'][1]), 1.0, atol=1e-3)
  assert normalized['image'] is rows['image'] and normalized['goal'][0] is rows['goal'][0]
  first = observation_statistics.or_first(observation_statistics.initial(SPEC), found)
  jax.tree.map(np.testing.assert_array_equal, first, found)


@pytest.mark.slow
def test_frames_of_a_nest_are_stacked_leaf_by_leaf():
  timesteps = random_rows(6, 2)
  nest, is_first = show(timesteps.observation), timesteps.step_type == 0
  frames = jax.tree.map(lambda x: jnp.ones((2, 2, *x.shape[2:]), x.dtype), nest)
  stacked, after = stack_frames(frames, nest, is_first)
  before = frames_before_rows(frames, nest, is_first)
  one = stack_frames(frames['image'], nest['image'], is_first)
  np.testing.assert_array_equal(stacked['image'], one[0])
  np.testing.assert_array_equal(after['image'], one[1])
  np.testing.assert_array_equal(stacked['goal'][0][..., -1], nest['goal'][0])
  np.testing.assert_array_equal(before['goal'][0][3], stacked['goal'][0][3, :, :-1])


OPTIONS = {
  'vtrace': {'normalize_observations': True, 'core': 'lstm'},
  'ppo': {'frame_stack': 2, 'separate_critic': True},
  'pqn': {'frame_stack': 2},
  'r2d2': {'frame_stack': 2},
}


@pytest.mark.slow
@pytest.mark.parametrize('name', SMALL_AGENTS)
def test_an_agent_learns_from_every_leaf_and_replays_what_it_recorded(name):
  make = functools.partial(make_agent, name, SPEC, **OPTIONS[name])
  agent, state, unrolls, output = recorded(make, show)
  timestep, action, extras = swapped((unrolls.timestep, unrolls.action, unrolls.extras))
  replayed, _ = jax.jit(agent.network.unroll)(state.params, unrolls.core_state, timestep, action)
  if name == 'r2d2':
    np.testing.assert_allclose(replayed, extras['q_values'], atol=1e-5)
  elif name != 'pqn':  # It stores nothing of what it computed.
    np.testing.assert_allclose(replayed.logits, extras['behaviour_logits'], atol=1e-5)
  before, after = state.params['params'], output.state.params['params']
  moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), before, after)
  torsos_of = moved['torso'] if name != 'ppo' else moved['torso']['policy']
  kernels = {where: jax.tree.leaves(torsos_of[where]) for where in torsos_of}
  assert {'leaves_goal.0', 'leaves_goal.1', 'leaves_image', 'leaves_vector'} < kernels.keys()
  assert all(any(changed) for changed in kernels.values()), kernels
  assert jax.tree.all(jax.tree.map(lambda x: bool(np.isfinite(x).all()), (after, output.metrics)))


@pytest.mark.slow
def test_the_torsos_of_policy_and_value_share_no_parameters():
  agent = make_agent('ppo', SPEC, separate_critic=True)
  params = jax.jit(agent.init)(jax.random.key(0)).params['params']['torso']
  assert params.keys() == {'policy', 'value'}
  assert jax.tree.structure(params['policy']) == jax.tree.structure(params['value'])
  kernels = (params[which]['leaves_vector']['Dense_0']['kernel'] for which in params)
  assert not np.allclose(*kernels)


def test_names_are_in_the_order_of_jax():
  nest = {'b': (1, {'y': 2, 'x': 3}), 'a': 4, 'c': ()}
  assert list(nests.named(nest).items()) == [('a', 4), ('b/0', 1), ('b/1/x', 3), ('b/1/y', 2)]
  assert list(nests.named(nest).values()) == jax.tree.leaves(nest)
  assert nests.named(5) == {'': 5}
