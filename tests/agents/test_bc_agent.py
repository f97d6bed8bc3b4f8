"""Behaviour cloning: its loss, what it learns, and whose parameters it has."""

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.actor_critic.head import PolicyValue
from agents.agent import ActOutput
from agents.bc.agent import BC
from agents.bc.config import BCConfig
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.types import FIRST, LAST, MID, Timestep
from tests.agents.transitions import ACTION_SPEC, OBSERVATION_SPEC, by_sign, transitions

SMALL = {'mlp_sizes': (16,), 'learning_rate': 1e-2}
BOX = dm_env.specs.BoundedArray((1,), np.float32, -2.0, 2.0)


def make(action_spec=ACTION_SPEC, **options):
  return BC(BCConfig(**SMALL | options), OBSERVATION_SPEC, action_spec)


def act(agent, params, observation, exploration=0.0):
  size = len(observation)
  timestep = Timestep(np.full(size, FIRST), np.zeros(size), np.ones(size), np.float32(observation))
  keys = jax.random.split(jax.random.key(5), size)
  return jax.jit(agent.act)(params, {}, timestep, np.full(size, exploration, np.float32), keys)


def test_the_loss_of_three_transitions_is_that_of_their_probabilities():
  output = PolicyValue(jnp.log(jnp.array([[1.0, 3.0], [4.0, 1.0], [1.0, 1.0]])), jnp.zeros(3))
  loss, metrics = make().loss_of_output(output, transitions([[1, 0], [1, 1], [0, 9]]))
  np.testing.assert_allclose(loss, -np.log([3 / 4, 1 / 5, 1 / 2]).mean(), rtol=1e-6)
  assert metrics['accuracy'] == pytest.approx(2 / 3)  # The mode of equals is the first.
  assert metrics['loss'] == loss
  # A LAST row begins no transition.
  ended = transitions([[1, 0], [1, 1], [0, 9]], step_type=[(MID, MID), (LAST, FIRST), (MID, MID)])
  loss, _ = make().loss_of_output(output, ended)
  np.testing.assert_allclose(loss, -np.log([3 / 4, 1 / 2]).mean(), rtol=1e-6)


def _train(agent, data, steps=200):
  state, update = jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.update)
  for _ in range(steps):
    state, priorities, metrics = update(state, data())
  assert priorities is None and int(state.learner_steps) == steps
  return state, metrics


def test_it_learns_what_the_expert_does_and_the_rows_have_no_extras():
  rng = np.random.default_rng(0)
  agent = make(normalize_observations=True)
  state, metrics = _train(agent, lambda: by_sign(rng, 64))
  assert metrics['accuracy'] > 0.95
  assert state.params['observation_statistics']['count'] == 200 * 64
  held_out = by_sign(np.random.default_rng(1), 256)
  acted = act(agent, state.params, held_out.timestep.observation[:, 0])
  assert isinstance(acted, ActOutput) and acted.extras == {}
  assert np.mean(acted.action == held_out.action[:, 0]) > 0.95


@pytest.mark.parametrize('policy_std', ['state', 'free'])
def test_continuous_actions_are_learned_up_to_the_bounds(policy_std):
  rng = np.random.default_rng(0)

  def data():
    observation = rng.normal(size=(64, 2, 4))
    action = np.clip(4.0 * observation[..., :1], -2.0, 2.0).astype(np.float32)
    return transitions(action, observation, np.full((64, 2), MID))

  agent = make(BOX, policy_std=policy_std)
  state, metrics = _train(agent, data, steps=400)
  assert metrics['action_error'] < 0.25  # Of 1 to a bound; a policy of zeros has about 0.8.
  there = np.zeros((2, 4))
  there[:, 0] = 1.0, -1.0
  action = act(agent, state.params, there).action
  np.testing.assert_allclose(action, [[2.0], [-2.0]], atol=0.4)
  assert np.isfinite(jax.tree.leaves(state.params)[0]).all()


@pytest.mark.parametrize('separate_critic', [False, True])
def test_ppo_acts_with_its_parameters_as_it_does(separate_critic):
  shared = {'mlp_sizes': (16,), 'normalize_observations': True, 'separate_critic': separate_critic}
  agent = make(**shared)
  ppo = PPO(PPOConfig(**shared), OBSERVATION_SPEC, ACTION_SPEC)
  params = jax.jit(agent.init)(jax.random.key(0)).params
  theirs = jax.eval_shape(ppo.init, jax.random.key(0)).params
  assert jax.tree.structure(params) == jax.tree.structure(theirs)
  observation = np.random.default_rng(0).normal(size=(32, 4))
  for exploration in (0.0, 1.0):
    ours, ppos = (act(a, params, observation, exploration).action for a in (agent, ppo))
    np.testing.assert_array_equal(ours, ppos)


@pytest.mark.parametrize(
  'options, words', [({'core': 'lstm'}, '--core'), ({'frame_stack': 2}, '--frame_stack')]
)
def test_what_needs_more_than_a_transition_is_rejected(options, words):
  with pytest.raises(ValueError, match=words):
    make(**options)
