"""Action masks: an illegal action is never chosen, learned from or counted in an entropy."""

import copy
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from agents import action_mask, spaces
from agents.action_mask import LegalActions
from agents.actor_critic.distributions import Categorical
from agents.q_learning.epsilon_greedy import epsilon_greedy
from agents.turns import TurnActions
from tests.agents.masked import SPEC, all_legal, some_illegal
from tests.agents.recording import (
  ACTION_SPEC,
  CONTINUOUS_ACTION_SPEC,
  NUM_ACTIONS,
  OBSERVATION_SPEC,
)
from tests.agents.small_agents import SMALL_AGENTS, make_agent, recorded

every_agent = pytest.mark.parametrize('name', SMALL_AGENTS)


def alone(observation):
  return observation


def of(name, show, **options):
  """Returns an agent, its learner state, its unrolls and its update of them."""
  spec = OBSERVATION_SPEC if show is alone else SPEC
  return recorded(_maker(name, spec is SPEC, **options), show)


@functools.cache
def _maker(name, masked, **options):
  return functools.partial(make_agent, name, SPEC if masked else OBSERVATION_SPEC, **options)


def test_a_network_sees_the_rest_and_an_entry_alone_as_it_is():
  assert spaces.seen(SPEC) is OBSERVATION_SPEC
  several = {'a': 1, 'b': 2}
  assert spaces.seen(several | {'action_mask': 3}) == several
  for other in (5, (1, 2), {'a': 1}):
    assert spaces.seen(other) is other


def test_legal_actions_are_read_by_each_action_and_all_are_legal_if_none_is():
  legal = LegalActions(SPEC, ACTION_SPEC).of({'action_mask': jnp.array([[0, 1, 2, 0], [0] * 4])})
  np.testing.assert_array_equal(legal, [[False, True, True, False], [True] * 4])
  two = specs.BoundedArray((2,), np.int32, 0, [1, 2])
  spec = {'x': OBSERVATION_SPEC, 'action_mask': specs.Array((5,), bool)}
  legal = LegalActions(spec, two).of({'action_mask': jnp.array([[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]])})
  np.testing.assert_array_equal(legal, [[1, 0, 1, 1, 1], [1, 1, 0, 1, 0]])
  turns = TurnActions(2, lambda observation: observation > 0)
  legal = LegalActions(OBSERVATION_SPEC, turns).of(jnp.array([[1, 0], [0, 0]]))
  np.testing.assert_array_equal(legal, [[True, False], [True, True]])
  assert LegalActions(OBSERVATION_SPEC, ACTION_SPEC).of(jnp.zeros((1, 3, 2))) is None


def _positive(observation):
  return observation > 0


def test_copies_and_pickles_of_turns_keep_the_rules():
  turns = TurnActions(2, _positive)
  for copied in (copy.copy(turns), copy.deepcopy(turns), pickle.loads(pickle.dumps(turns))):
    assert (type(copied), copied.num_values, copied.legal) == (TurnActions, 2, _positive)


def test_values_of_small_dtypes_are_counted_without_overflow():
  assert spaces.num_values(specs.BoundedArray((2,), np.uint8, 0, 255)) == (256, 256)


@pytest.mark.parametrize(
  'spec, actions, said',
  [
    (
      SPEC,
      specs.DiscreteArray(3),
      r'is \[4\], but there are 3 actions: give it one entry for each',
    ),
    (SPEC, CONTINUOUS_ACTION_SPEC, 'but the actions are continuous: leave it out'),
    (
      {'action_mask': SPEC['action_mask']},
      ACTION_SPEC,
      'nothing besides its action_mask: add what',
    ),
  ],
)
def test_a_mask_that_does_not_fit_is_rejected_in_one_sentence(spec, actions, said):
  with pytest.raises(ValueError, match=said):
    LegalActions(spec, actions)


def test_the_entropy_and_probabilities_are_those_over_the_legal_actions():
  logits, legal = jnp.array([0.3, -1.0, 2.0, 0.7]), jnp.array([True, False, True, False])
  masked = action_mask.masked(logits, legal)
  np.testing.assert_allclose(
    Categorical(4).entropy(masked), Categorical(2).entropy(logits[legal]), rtol=1e-6
  )
  np.testing.assert_allclose(
    Categorical(4).log_prob(masked, jnp.array(2)),
    Categorical(2).log_prob(logits[legal], jnp.array(1)),
    rtol=1e-6,
  )

  def loss(logits):
    masked = action_mask.masked(logits, legal)
    return Categorical(4).entropy(masked) + Categorical(4).log_prob(masked, jnp.array(2))

  gradient = jax.grad(loss)(logits)
  np.testing.assert_array_equal(gradient[~legal], 0.0)
  assert np.isfinite(gradient).all() and (gradient[legal] != 0).all()


def test_epsilon_greedy_chooses_legal_actions_and_all_legal_changes_nothing():
  keys, q_values = jax.random.split(jax.random.key(0), 4000), jnp.array([0.0, 3.0, 1.0, 2.0, 5.0])
  legal = jnp.array([True, False, True, True, False])
  masked = action_mask.masked(q_values, legal)
  choose = jax.vmap(epsilon_greedy, in_axes=(0, None, None, None))
  random = np.bincount(choose(keys, masked, 1.0, legal), minlength=5) / 4000
  np.testing.assert_allclose(random, [1 / 3, 0, 1 / 3, 1 / 3, 0], atol=0.03)
  assert set(choose(keys, masked, 0.0, legal).tolist()) == {3}
  np.testing.assert_array_equal(
    choose(keys, q_values, 0.5, jnp.ones(5, bool)), choose(keys, q_values, 0.5, None)
  )


@pytest.mark.slow
@every_agent
def test_an_illegal_action_is_never_chosen_and_learning_stays_finite(name):
  agent, _, unrolls, output = of(name, some_illegal)
  mask = np.asarray(unrolls.timestep.observation['action_mask'])
  some, chosen = mask.any(-1), np.take_along_axis(mask, np.asarray(unrolls.action)[..., None], -1)
  assert not mask.all() and not some.all()
  assert chosen[some].all()
  assert len(np.unique(unrolls.action)) == NUM_ACTIONS
  if name != 'pqn':  # It stores nothing of what it computed.
    values = unrolls.extras['q_values' if name == 'r2d2' else 'behaviour_logits']
    np.testing.assert_array_equal(values[some] == action_mask.ILLEGAL, mask[some] == 0)
  finite = jax.tree.map(lambda x: bool(np.isfinite(x).all()), output)
  assert jax.tree.all(finite)
  assert abs(output.metrics['loss']) < 1e4
  if name == 'r2d2':
    assert output.metrics['td_error'] < 100
    np.testing.assert_allclose(agent.initial_priorities(unrolls), output.priorities, rtol=1e-4)


@pytest.mark.slow
@every_agent
def test_evaluation_never_chooses_an_illegal_action(name):
  agent, state, unrolls, _ = of(name, some_illegal)
  timestep, core_state = jax.tree.map(lambda x: x[:, 0], unrolls.timestep), unrolls.core_state
  act = jax.jit(agent.act)
  keys, greedy = jax.random.split(jax.random.key(3), 6), jnp.zeros(6)
  for only in range(NUM_ACTIONS):
    mask = jnp.zeros((6, NUM_ACTIONS), jnp.int8).at[:, only].set(1)
    shown = timestep._replace(observation=timestep.observation | {'action_mask': mask})
    np.testing.assert_array_equal(act(state.params, core_state, shown, greedy, keys).action, only)


@pytest.mark.slow
@every_agent
def test_where_everything_is_legal_a_mask_changes_no_bit_of_acting_and_learning_by_rounding(name):
  options = {'frame_stack': 2}
  _, masked_state, masked_unrolls, masked = of(name, all_legal, **options)
  _, state, unrolls, output = of(name, alone, **options)
  seen = masked_unrolls.timestep.observation['observation']
  np.testing.assert_array_equal(seen, unrolls.timestep.observation)
  found = masked_state, masked_unrolls._replace(timestep=None)
  expected = state, unrolls._replace(timestep=None)
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  # XLA fuses the two programs differently.
  close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
  jax.tree.map(close, masked, output)
