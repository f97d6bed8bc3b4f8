"""AVRIL: the three terms of its loss, each by its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from agents.actor_critic.head import PolicyValue
from agents.avril.agent import AVRIL, REWARD, Posterior
from agents.avril.config import AVRILConfig
from agents.bc.agent import BC
from agents.bc.config import BCConfig
from tests.agents.transitions import ACTION_SPEC, OBSERVATION_SPEC, by_sign, transitions

SMALL = {'mlp_sizes': (16,), 'learning_rate': 1e-2}
# Q in both rows of three transitions, and the actions there; the last one is of a LAST row.
Q = np.log([[1.0, 3.0], [4.0, 1.0], [1.0, 1.0]])
Q_AFTER = np.array([[1.0, 2.0], [0.5, -1.0], [9.0, 9.0]])
ACTIONS = [[1, 0], [0, 1], [0, 7]]
NLL = -np.log([3 / 4, 4 / 5, 1 / 2]).mean()


def make(**options):
  return AVRIL(AVRILConfig(**SMALL | options), OBSERVATION_SPEC, ACTION_SPEC)


class Fixed(AVRIL):
  """An agent whose Q is fixed, and whose parameters are the posterior itself."""

  def forward(self, params, unrolls, row=0):
    return PolicyValue(jnp.float32((Q, Q_AFTER)[row]), jnp.zeros(3))

  def reward(self, params, timestep):
    return params


def fixed(**options):
  return Fixed(AVRILConfig(**SMALL | options), OBSERVATION_SPEC, ACTION_SPEC)


def posterior(mean, std):
  return Posterior(jnp.float32(mean), jnp.log(jnp.float32(std)))


def test_the_loss_of_three_transitions_is_the_sum_of_its_terms():
  mean, std = np.array([0.2, -0.1, 0.3]), np.array([1.0, 2.0, 0.5])
  agent = fixed(discount=0.5, td_cost=0.7, kl_cost=0.3)
  loss, metrics = agent.loss(posterior(mean, std), transitions(ACTIONS))
  # The last transition of an episode has no action after it.
  suggested = np.array([np.log(3) - 0.5 * 1.0, np.log(4) - 0.5 * -1.0])
  td = -stats.norm.logpdf(suggested, mean[:2], std[:2]).mean()
  kl = (0.5 * (-np.log(std**2) - 1 + std**2 + mean**2)).mean()
  np.testing.assert_allclose(metrics['nll'], NLL, rtol=1e-6)
  np.testing.assert_allclose(metrics['td_loss'], td, rtol=1e-6)
  np.testing.assert_allclose(metrics['kl'], kl, rtol=1e-6)
  np.testing.assert_allclose(loss, NLL + 0.7 * td + 0.3 * kl, rtol=1e-6)
  assert metrics['loss'] == loss


def test_the_prior_has_no_divergence_and_a_new_posterior_is_almost_the_prior():
  _, metrics = fixed().loss(posterior(np.zeros(3), np.ones(3)), transitions(ACTIONS))
  assert metrics['kl'] == 0.0
  agent = make()
  params = agent.init(jax.random.key(0)).params
  _, metrics = agent.loss(params, by_sign(np.random.default_rng(0), 64))
  assert 0.0 <= metrics['kl'] < 1e-2


def test_the_differences_pull_the_reward_to_what_q_suggests():
  agent, data = fixed(discount=0.5, kl_cost=0.0), transitions(ACTIONS)
  mean = jnp.zeros(3)
  gradient = jax.jit(jax.grad(lambda m: agent.loss(posterior(m, np.ones(3)), data)[0]))
  for _ in range(200):
    mean -= 0.5 * gradient(mean)
  np.testing.assert_allclose(mean, [np.log(3) - 0.5, np.log(4) + 0.5, 0.0], atol=1e-5)


@pytest.mark.slow
def test_without_both_terms_its_updates_are_bitwise_those_of_behaviour_cloning():
  agent = make(td_cost=0.0, kl_cost=0.0)
  cloning = BC(BCConfig(**SMALL), OBSERVATION_SPEC, ACTION_SPEC)
  ours, theirs = (a.init(jax.random.key(3)) for a in (agent, cloning))
  begun = ours.params[REWARD]
  theirs = theirs._replace(params={n: v for n, v in ours.params.items() if n != REWARD})
  for seed in range(3):  # Operation by operation, since XLA fuses two functions differently.
    data = by_sign(np.random.default_rng(seed), 32)
    ours, theirs = (a.update(s, data).state for a, s in ((agent, ours), (cloning, theirs)))
  rest = {name: value for name, value in ours.params.items() if name != REWARD}
  jax.tree.map(np.testing.assert_array_equal, rest, theirs.params)
  jax.tree.map(np.testing.assert_array_equal, ours.params[REWARD], begun)
  with_terms = make().init(jax.random.key(3))
  with_terms = make().update(with_terms, by_sign(np.random.default_rng(0), 32)).state
  assert not np.array_equal(
    jax.tree.leaves(with_terms.params[REWARD])[0], jax.tree.leaves(begun)[0]
  )


def test_it_learns_what_the_expert_does_and_becomes_surer_of_its_rewards():
  rng, agent = np.random.default_rng(0), make()
  state, update = jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.update)
  for _ in range(300):
    state, _, metrics = update(state, by_sign(rng, 64))
  assert metrics['accuracy'] > 0.95
  assert metrics['td_loss'] < 0.5 * np.log(2 * np.pi)  # Narrower than the prior, so less unsure.


def test_continuous_actions_are_rejected():
  from tests.agents.recording import CONTINUOUS_ACTION_SPEC

  with pytest.raises(ValueError, match='another agent or environment'):
    AVRIL(AVRILConfig(), OBSERVATION_SPEC, CONTINUOUS_ACTION_SPEC)
