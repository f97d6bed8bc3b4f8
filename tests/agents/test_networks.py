"""Frame stacks and the recurrent network: acting and learning see the same."""

from __future__ import annotations

import dataclasses

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.networks import core_state as core_states
from agents.networks import torsos
from agents.networks.config import NetworkConfig
from agents.networks.cores import LSTM
from agents.networks.frame_stack import stack_frames
from agents.networks.recurrent import RecurrentNetwork
from agents.types import FIRST, LAST, MID, Timestep

DISCRETE = dm_env.specs.DiscreteArray(3, dtype=np.int32)


def image_spec(*shape, dtype=np.uint8):
  return dm_env.specs.BoundedArray(shape, dtype, 0, 255)


def test_frame_stack_literal():
  # One pixel, k = 3, two environments: the second starts an episode at row 1.
  frames = jnp.array([[[7], [8]], [[70], [80]]], jnp.uint8)
  observation = jnp.array([[[1], [10]], [[2], [20]], [[3], [30]], [[4], [40]]], jnp.uint8)[..., 0]
  is_first = jnp.array([[False, False], [False, True], [False, False], [False, False]])
  stacked, after = stack_frames(frames[..., 0], observation, is_first)
  assert stacked.dtype == jnp.uint8
  np.testing.assert_array_equal(stacked[:, 0], [[7, 8, 1], [8, 1, 2], [1, 2, 3], [2, 3, 4]])
  np.testing.assert_array_equal(
    stacked[:, 1], [[70, 80, 10], [0, 0, 20], [0, 20, 30], [20, 30, 40]]
  )
  np.testing.assert_array_equal(after, [[3, 4], [30, 40]])


@pytest.mark.parametrize('dtype', [bool, np.uint8, np.int32, np.float32, jnp.bfloat16])
def test_a_frame_stack_and_its_state_have_the_dtype_of_the_observation(dtype):
  frames, observation = jnp.ones((2, 2, 5), dtype), jnp.ones((3, 2, 5), dtype)
  stacked, after = stack_frames(frames, observation, jnp.zeros((3, 2), bool).at[1].set(True))
  assert stacked.dtype == after.dtype == dtype
  np.testing.assert_array_equal(stacked[1, 0, 0], np.array([0, 0, 1], dtype))


def test_frame_stack_over_an_unroll_is_row_by_row_stacking():
  rng = np.random.default_rng(0)
  observation = jnp.asarray(rng.integers(1, 255, (21, 4, 5, 6), dtype=np.uint8))
  is_first = jnp.asarray(rng.uniform(size=(21, 4)) < 0.2)
  before = frames = jnp.asarray(rng.integers(1, 255, (4, 3, 5, 6), dtype=np.uint8))
  rows = []
  for t in range(21):
    row, frames = stack_frames(frames, observation[t : t + 1], is_first[t : t + 1])
    rows.append(row)
  stacked, after = stack_frames(before, observation, is_first)
  np.testing.assert_array_equal(stacked, jnp.concatenate(rows))
  np.testing.assert_array_equal(after, frames)


def test_reset_is_leafwise_and_keeps_dtypes():
  state = {'a': jnp.ones((3, 2, 2), jnp.uint8), 'b': (jnp.full((3,), 5), jnp.full((3, 1), 0.5))}
  start = {'a': jnp.zeros((3, 2, 2)), 'b': (-1, 0.0)}
  after = core_states.reset(state, start, jnp.array([False, True, False]))
  np.testing.assert_array_equal(after['a'][:, 0, 0], [1, 0, 1])
  np.testing.assert_array_equal(after['b'][0], [5, -1, 5])
  np.testing.assert_array_equal(after['b'][1], [[0.5], [0.0], [0.5]])
  assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, state)


class Features(nn.Module):
  """A head that shows what the network computes before it."""

  def __call__(self, features):
    return {'features': features}


class CountingLSTM(LSTM):
  """A core whose state counts the rows of the episode it has consumed."""

  @nn.compact
  def __call__(self, inputs, is_first, state):
    def step(state, row):
      c, h = core_states.reset(state, (0.0, 0.0), row)
      return (c + 1, h), c

    state, counts = jax.lax.scan(step, state, is_first)
    return jnp.concatenate([inputs, counts], -1), state


def counter_rows(num_rows, batch_size, seed=0):
  """Episodes of random lengths; the observation is the number of rows since FIRST."""
  rng = np.random.default_rng(seed)
  step_type = np.zeros((num_rows, batch_size), np.uint8)
  counter = np.zeros((num_rows, batch_size), np.int32)
  for t in range(1, num_rows):
    restart = step_type[t - 1] == LAST
    end = (counter[t - 1] > 0) & (rng.uniform(size=batch_size) < 0.25)
    step_type[t] = np.where(restart, FIRST, np.where(end, LAST, MID))
    counter[t] = np.where(restart, 0, counter[t - 1] + 1)
  reward = np.where(step_type == FIRST, 0, 3 * rng.normal(size=step_type.shape))
  timestep = Timestep(
    jnp.asarray(step_type),
    jnp.asarray(reward, jnp.float32),
    jnp.asarray(step_type != LAST, jnp.float32),
    jnp.asarray(counter, jnp.float32)[..., None],
  )
  return timestep, jnp.asarray(rng.integers(0, 3, step_type.shape), jnp.int32)


def step_by_step(network, params, core_state, timestep, action):
  """Returns the outputs of each row `[T, ...]` and the core states before each row and after all."""
  outputs, states = [], [core_state]
  step = jax.jit(network.step)
  for t in range(action.shape[0]):
    row = jax.tree.map(lambda x, t=t: x[t], timestep)
    output, core_state = step(params, core_state, row)
    core_state = network.record_action(core_state, action[t])
    outputs.append(output)
    states.append(core_state)
  return jax.tree.map(lambda *x: jnp.stack(x), *outputs), states


RECURRENT = NetworkConfig(core='lstm', core_size=8, frame_stack=4, mlp_sizes=(16,))
COUNTER = dm_env.specs.Array((1,), np.float32)


def close(actual, expected, atol=1e-6):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('core', 'frame_stack'), [('lstm', 4), ('gru', 1), ('lru', 1), ('none', 4), ('none', 1)]
)
def test_unroll_is_step_by_step_acting(core, frame_stack):
  config = dataclasses.replace(RECURRENT, core=core, frame_stack=frame_stack)
  network = RecurrentNetwork(config, COUNTER, DISCRETE, Features())
  timestep, action = counter_rows(num_rows=40, batch_size=6)
  assert np.sum(timestep.step_type[20:] == FIRST) > 6
  params = jax.jit(network.init)(jax.random.key(1))
  outputs, states = step_by_step(network, params, network.initial_core_state(6), timestep, action)
  # From the middle of the stream, where the core state is none of its initial values.
  rows = jax.tree.map(lambda x: x[19:], timestep)
  unroll = jax.jit(network.unroll)
  unrolled, after = unroll(params, states[19], rows, action[19:])
  atol = 1e-5 if core == 'lru' else 1e-6  # Its outputs are not bounded.
  close(unrolled['features'], outputs['features'][19:], atol)
  close(after, states[-1], atol)
  # The state that goes in matters, unless the network has none.
  if states[19]:
    fresh, _ = unroll(params, network.initial_core_state(6), rows, action[19:])
    assert np.abs(fresh['features'] - unrolled['features'])[0].max() > 1e-3


def test_core_state_has_only_what_the_network_needs():
  def parts(**options):
    config = NetworkConfig(core_size=8, **options)
    network = RecurrentNetwork(config, image_spec(6, 6), DISCRETE, Features())
    state = network.initial_core_state(2)
    return jax.tree.map(lambda x: (x.shape, str(x.dtype)), state)

  lstm = (((2, 8), 'float32'), ((2, 8), 'float32'))
  assert parts() == {}
  assert parts(core='lstm') == {'lstm': lstm, 'prev_action': ((2,), 'int32')}
  assert parts(core='gru') == {'gru': lstm[:1], 'prev_action': ((2,), 'int32')}
  assert parts(core='lru') == {'lru': lstm, 'prev_action': ((2,), 'int32')}
  assert parts(frame_stack=4) == {'frames': ((2, 3, 6, 6), 'uint8')}


def test_stored_state_belongs_to_its_row():
  network = RecurrentNetwork(RECURRENT, COUNTER, DISCRETE, Features())
  network.body = network.body.clone(torso=torsos.MLP(()), core=CountingLSTM(8))
  timestep, action = counter_rows(num_rows=30, batch_size=5)
  counter = np.asarray(timestep.observation)[..., 0]
  params = jax.jit(network.init)(jax.random.key(0))
  outputs, states = step_by_step(network, params, network.initial_core_state(5), timestep, action)
  for t in range(30):
    consumed = np.asarray(states[t]['lstm'][0])[:, 0]
    middle = np.asarray(timestep.step_type[t]) != FIRST
    np.testing.assert_array_equal(consumed[middle], counter[t][middle])
  np.testing.assert_array_equal(outputs['features'][..., -1], counter)
  unrolled, _ = jax.jit(network.unroll)(
    params, states[13], jax.tree.map(lambda x: x[13:], timestep), action[13:]
  )
  np.testing.assert_array_equal(unrolled['features'][..., -1], counter[13:])


def test_core_sees_previous_action_and_clipped_reward():
  network = RecurrentNetwork(NetworkConfig(core='lstm', core_size=8), COUNTER, DISCRETE, Features())
  network.body = network.body.clone(torso=torsos.MLP(()), core=CountingLSTM(8))
  timestep = Timestep(
    jnp.array([[MID], [LAST], [FIRST], [MID]], jnp.uint8),
    jnp.array([[0.25], [-7.0], [9.0], [2.0]]),
    jnp.ones((4, 1)),
    jnp.zeros((4, 1, 1)),
  )
  state = {**network.initial_core_state(1), 'prev_action': jnp.array([2])}
  outputs, after = network.unroll({}, state, timestep, jnp.array([[1], [0], [1], [0]]))
  # Observation, one-hot of the action one row before, reward.
  np.testing.assert_array_equal(
    outputs['features'][:, 0, :5],
    [[0, 0, 0, 1, 0.25], [0, 0, 1, 0, -1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 1]],
  )
  np.testing.assert_array_equal(after['prev_action'], [0])


def test_nothing_crosses_into_the_next_episode():
  network = RecurrentNetwork(RECURRENT, COUNTER, DISCRETE, Features())
  params = jax.jit(network.init)(jax.random.key(0))
  timestep, action = counter_rows(num_rows=12, batch_size=1)
  start = int(np.flatnonzero(np.asarray(timestep.step_type[:, 0]) == FIRST)[1])
  unroll = jax.jit(network.unroll)
  outputs, after = unroll(params, network.initial_core_state(1), timestep, action)
  changed = timestep._replace(
    observation=timestep.observation.at[:start].add(5.0),
    reward=timestep.reward.at[: start + 1].add(0.5),
  )
  state = jax.tree.map(lambda x: x + 1, network.initial_core_state(1))
  other, other_after = unroll(params, state, changed, action.at[:start].set(0))
  assert np.any(other['features'][:start] != outputs['features'][:start])
  np.testing.assert_array_equal(other['features'][start:], outputs['features'][start:])
  jax.tree.map(np.testing.assert_array_equal, other_after, after)


@pytest.mark.slow
def test_continuous_actions_reach_the_core():
  spec = dm_env.specs.BoundedArray((2,), np.float32, -1.0, 1.0)
  network = RecurrentNetwork(RECURRENT, COUNTER, spec, Features())
  params = jax.jit(network.init)(jax.random.key(0))
  timestep, _ = counter_rows(num_rows=10, batch_size=3)
  action = jax.random.normal(jax.random.key(1), (10, 3, 2))
  outputs, states = step_by_step(network, params, network.initial_core_state(3), timestep, action)
  unrolled, after = jax.jit(network.unroll)(params, states[0], timestep, action)
  close(unrolled, outputs)
  close(after, states[-1])
