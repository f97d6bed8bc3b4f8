"""The agents of `examples/`: what each replaces, and that nothing else of its base changes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.anakin.environments.catch import Catch
from agents.anakin.evaluation import Evaluation
from agents.anakin.limits import RingSizes
from agents.anakin.loop import AnakinLoop
from agents.types import FIRST, LAST, MID, Timestep
from agents.value_rescaling import h, h_inverse
from examples.kl_penalty import KLPenalty
from examples.munchausen import Munchausen
from tests.agents.recording import ACTION_SPEC, OBSERVATION_SPEC, make_unrolls

SMALL = {'unroll_length': 4, 'mlp_sizes': (8,)}
CATCH = Catch()


def test_the_penalty_has_the_gradient_of_the_divergence_from_the_policy_that_acted():
  def agent_of(kl_cost):
    return KLPenalty(KLPenalty.Config(**SMALL, kl_cost=kl_cost), OBSERVATION_SPEC, ACTION_SPEC)

  agent = agent_of(0.0)
  acted, learned = (jax.jit(agent.init)(jax.random.key(seed)) for seed in (0, 1))
  unrolls = make_unrolls(agent, acted, batch_size=6)

  def divergence(params):
    output, rows = agent.forward(params, unrolls)
    log_pi = jax.nn.log_softmax(output.logits[:-1])
    taken = jnp.take_along_axis(log_pi, rows.action[:-1, :, None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(rows.valid, taken, 0.0)) / jnp.sum(rows.valid)

  @jax.jit
  def gradients(params):
    losses = (lambda p, kl_cost=cost: agent_of(kl_cost).loss(p, unrolls)[0] for cost in (0.0, 2.0))
    return [jax.grad(loss)(params) for loss in (*losses, divergence)]

  without, penalised, expected = gradients(learned.params)
  assert max(np.abs(x).max() for x in jax.tree.leaves(expected)) > 1e-3
  jax.tree.map(
    lambda a, b, kl: np.testing.assert_allclose(a, b + 2.0 * kl, atol=1e-5),
    penalised,
    without,
    expected,
  )


def munchausen_targets(config, q_target, action, step_type, reward, discount):
  """Returns the targets `[U]` of one unroll by the definition, row by row, in the range of h."""
  q = np.asarray(h_inverse(q_target, config.rescale_epsilon), np.float64)
  tau, gamma = config.temperature, config.discount
  pi = np.exp((q - q.max(-1, keepdims=True)) / tau)
  pi /= pi.sum(-1, keepdims=True)
  log_pi = np.log(np.maximum(pi, 1e-300))
  value = np.sum(pi * (q - tau * log_pi), -1)
  last_row = len(action) - 1
  found = []
  for start in range(last_row):
    total, weight, row = 0.0, 1.0, start
    for _ in range(config.n_step):
      if row == last_row or step_type[row] == LAST:
        break
      bonus = np.clip(tau * log_pi[row, action[row]], config.lowest_log_policy, 0.0)
      total += weight * (reward[row + 1] + config.munchausen * bonus)
      weight *= gamma * discount[row + 1]
      row += 1
    found.append(total + weight * value[row])
  return np.asarray(h(np.array(found), config.rescale_epsilon))


def test_munchausen_targets_are_those_of_the_definition():
  config = Munchausen.Config(burn_in=0, unroll_length=7, n_step=3, temperature=0.5)
  agent = Munchausen(config, CATCH.observation_spec, CATCH.action_spec)
  random = np.random.default_rng(0)
  q_online, q_target = random.normal(size=(2, 8, 4, 3)).astype(np.float32)
  action, reward = random.integers(3, size=(8, 4)), random.normal(size=(8, 4)).astype(np.float32)
  step_type = np.full((8, 4), MID)
  step_type[3, 1], step_type[4, 1] = LAST, FIRST
  discount = np.ones((8, 4), np.float32)
  discount[3, 1] = 0.0
  timestep = Timestep(step_type, reward, discount, None)
  valid = step_type[:-1] != LAST
  found = agent.targets(q_online, q_target, action, timestep, valid)
  for i in range(4):
    rows = (x[:, i] for x in (q_target, action, step_type, reward, discount))
    expected = munchausen_targets(config, *rows)
    np.testing.assert_allclose(found[valid[:, i], i], expected[valid[:, i]], rtol=1e-4, atol=1e-5)


def test_munchausen_gives_new_unrolls_the_priorities_of_its_own_targets():
  def priorities(munchausen):
    options = {'burn_in': 0, 'n_step': 2, 'core': 'none', 'head_size': 8}
    config = Munchausen.Config(**SMALL, **options, munchausen=munchausen)
    agent = Munchausen(config, OBSERVATION_SPEC, ACTION_SPEC)
    state = jax.jit(agent.init)(jax.random.key(0))
    unrolls = make_unrolls(agent, state, batch_size=4)
    updated = jax.jit(agent.update)(state, unrolls)
    return jax.jit(agent.initial_priorities)(unrolls), updated.priorities

  initial, updated = priorities(0.9)
  np.testing.assert_allclose(initial, updated, rtol=1e-4)
  assert not np.allclose(initial, priorities(0.0)[0], rtol=0.05)


@pytest.mark.trains
def test_munchausen_learns_catch():
  config = Munchausen.Config(
    burn_in=0,
    unroll_length=10,
    n_step=3,
    discount=0.99,
    core='none',
    mlp_sizes=(64,),
    head_size=32,
    target_update_period=100,
    learning_rate=2e-3,
    adam_eps=1e-4,
  )
  rings = RingSizes(
    num_rings=8, slots=100, min_slots=5, batch_size=64, updates_per_unroll=1, priority_exponent=0.9
  )
  agent = Munchausen(config, CATCH.observation_spec, CATCH.action_spec)
  loop = AnakinLoop(agent, CATCH, 32, jax.devices()[:1], updates_per_call=250, rings=rings)
  evaluation = Evaluation(agent, CATCH, num_envs=300, episodes_each=1, rows_per_call=10)
  state = loop.init(jax.random.key(0))
  for calls in itertools.count(1):
    state, _ = loop.train(state)
    params = state.learner.params
    played = evaluation.play(params, evaluation.begin(params, jax.random.key(1)))
    if np.mean(played.returns) > 0.9:
      break
    assert calls < 12, np.mean(played.returns)
