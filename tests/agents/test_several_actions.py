"""Several discrete actions at once: acting, replaying and learning, with a mask and without."""

import functools

import jax
import numpy as np
import pytest
from dm_env import specs

from agents.axes import swapped
from agents.networks import core_state
from tests.agents.recording import OBSERVATION_SPEC
from tests.agents.small_agents import make_agent, recorded

ACTIONS = specs.BoundedArray((2,), np.int32, 0, [1, 2])
MASKED = {'x': OBSERVATION_SPEC, 'action_mask': specs.Array((5,), bool)}


def alone(observation):
  return observation


def some_illegal(observation):
  mask = observation.reshape(*observation.shape[:-2], 6)[..., :5] > 0
  return {'x': observation, 'action_mask': mask}


@functools.cache
def _maker(name, masked):
  spec = MASKED if masked else OBSERVATION_SPEC
  return functools.partial(make_agent, name, spec, ACTIONS, core='lstm')


@pytest.mark.slow
@pytest.mark.parametrize('show', [alone, some_illegal])
@pytest.mark.parametrize('name', ['vtrace', 'ppo'])
def test_an_actor_critic_chooses_each_action_and_replays_what_it_recorded(name, show):
  agent, state, unrolls, output = recorded(_maker(name, show is some_illegal), show)
  action = np.asarray(unrolls.action)
  assert action.dtype == np.int32 and action.shape == (6, agent.unroll_rows, 2)
  assert {*map(tuple, action.reshape(-1, 2).tolist())} == {
    (i, j) for i in range(2) for j in range(3)
  }
  if show is some_illegal:
    parts = np.split(np.asarray(unrolls.timestep.observation['action_mask']), [2], axis=-1)
    for k, mask in enumerate(parts):
      legal = np.take_along_axis(mask, action[..., k, None], -1)[..., 0]
      assert legal[mask.any(-1)].all() and not mask.all()
  timestep, action, extras = swapped((unrolls.timestep, unrolls.action, unrolls.extras))
  replayed, _ = jax.jit(agent.network.unroll)(state.params, unrolls.core_state, timestep, action)
  np.testing.assert_allclose(replayed.logits, extras['behaviour_logits'], atol=1e-5)
  assert jax.tree.all(jax.tree.map(lambda x: bool(np.isfinite(x).all()), output))
  np.testing.assert_allclose(output.metrics['rho'], 1.0, atol=1e-5)


def test_the_core_sees_each_of_the_previous_actions():
  before = core_state.no_action(ACTIONS, 3)
  assert before.shape == (3, 2) and before.dtype == np.int32
  encoded = core_state.encode_action(ACTIONS, np.array([[[1, 2], [0, 1], [-1, -1]]]))
  np.testing.assert_array_equal(
    encoded, [[[0, 1, 0, 0, 0, 1], [1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]]]
  )
