"""The inner updates by their definition, and the outer gradient against differences and enumeration."""

import dataclasses
import functools
import itertools

import dm_env.specs
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from agents import lifetimes
from agents.anakin import streams as playing
from agents.anakin.environments import lifetime
from agents.intrinsic_rewards.agent import IntrinsicRewards
from agents.intrinsic_rewards.config import IntrinsicRewardsConfig
from agents.types import FIRST, LAST, MID, Timestep, Unroll
from tests.agents.precision import enable_x64

SMALL = IntrinsicRewardsConfig(
  inner_period=3, inner_updates=3, gru_size=4, inner_scale=0.5, inner_learning_rate=0.7
)


@functools.cache
def make(config, **options):
  environment = lifetime.make('key_box', **{'episode_steps': 4, 'lifetime_steps': 11} | options)
  specs = environment.observation_spec, environment.action_spec
  return IntrinsicRewards(config, *specs), environment


@functools.lru_cache(maxsize=4)
def play(agent, environment, num_unrolls, num_envs=4, seed=0):
  """Returns parameters and successive batches of unrolls."""

  @jax.jit
  def run(key):
    params = agent.init(key).params
    common = agent, environment, params, jnp.int32(0)
    streams = playing.begin(*common, jnp.zeros(num_envs), jax.random.fold_in(key, 1))

    def unroll(streams, _):
      streams, batch, _ = playing.unroll(*common, streams)
      return streams, batch

    return params, jax.lax.scan(unroll, streams, length=num_unrolls)[1]

  params, batches = jax.device_get(run(jax.random.key(seed)))
  return params, [jax.tree.map(lambda x: x[i], batches) for i in range(num_unrolls)]  # noqa: B023


def double(nest):
  return jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, nest)


def rows_of(unrolls):
  """Returns the rows of successive unrolls, each once, `[B, T, ...]`."""
  batches = jax.device_get([(u.timestep, u.action, u.extras) for u in unrolls])
  return jax.tree.map(lambda *x: np.concatenate([x[0], *(y[:, 1:] for y in x[1:])], 1), *batches)


def softmax(x):
  return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def inner_policy(config, policy, features, ended, action, intrinsic):
  """Returns the tables of one lifetime before each row's action, by the definition of the returns.

  Args:
    config: of the agent.
    policy: `[F, A]`, as drawn.
    features: of the lifetime, `[T, F]`.
    ended: `[T]`, whether the transition into each row ended an inner episode.
    action: `[T]`.
    intrinsic: `[T]`, of the transition into each row.
  """
  tables, start = [policy], 0
  for t in range(1, len(action)):
    if t - start == config.inner_period:
      gradient = np.zeros_like(policy)
      for i in range(start, t):
        inner_return, discount = 0.0, 1.0
        for k in range(i, t):
          inner_return += discount * intrinsic[k + 1]
          discount *= config.inner_discount
          if ended[k + 1]:
            break
        score = np.eye(policy.shape[1])[action[i]] - softmax(features[i] @ policy)
        gradient += inner_return * np.outer(features[i], score)
      policy, start = policy + config.inner_learning_rate * gradient, t
    tables.append(policy)
  return tables


@pytest.mark.slow
def test_the_policy_is_drawn_at_first_and_learns_every_m_rows_from_the_intrinsic_reward_alone():
  agent, environment = make(SMALL)
  _, unrolls = play(agent, environment, 5)
  timestep, action, extras = rows_of(unrolls)
  lifetime_starts = np.flatnonzero(timestep.step_type[0] == FIRST)
  assert lifetime_starts.tolist() == [0, 12, 24, 36] and len(action[0]) == 46
  draw = jax.jit(lambda key: agent.inner.policy.draw(jax.random.wrap_key_data(key))[1])
  for b, start in itertools.product(range(4), lifetime_starts):
    window = b, slice(start, start + 12)
    drawn = np.asarray(draw(extras['policy_key'][b, start]))
    rows = (
      lifetimes.features(timestep.observation[window]),
      lifetimes.ended(timestep.observation[window]),
    )
    tables = inner_policy(SMALL, drawn, *rows, action[window], extras['intrinsic_reward'][window])
    # An unroll begins with the policy before the update that its row 0 makes.
    for i, unroll in enumerate(unrolls):
      t = 9 * i - start
      if 0 < t < 12:
        _, theta = unroll.core_state.policy
        np.testing.assert_allclose(theta[b], tables[t - 1], atol=1e-5)
  assert (np.abs(np.diff(tables, axis=0)).max((1, 2)) > 1e-3).nonzero()[0].tolist() == [2, 5, 8]


@pytest.mark.slow
@pytest.mark.parametrize('sizes', [(), (5,)])
def test_the_repeated_unroll_ends_in_the_next_ones_core_state(sizes):
  agent, environment = make(dataclasses.replace(SMALL, inner_sizes=sizes))
  params, unrolls = play(agent, environment, 5)
  consume, replay = jax.jit(agent.inner.consume), jax.jit(agent.replay)
  for unroll, following in itertools.pairwise(unrolls):
    row = jax.tree.map(lambda x: x[:, 0], (following.timestep, following.extras['policy_key']))
    expected, _ = consume(params, following.core_state, *row)
    replayed = replay(params, unroll)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), replayed.state, expected)
    np.testing.assert_allclose(
      replayed.intrinsic_reward.T, unroll.extras['intrinsic_reward'][:, 1:], atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
  'options', [{'inner_sizes': (5,)}, {'reward_memory': 'none', 'outer_objective': 'episode'}]
)
def test_the_outer_gradient_equals_central_differences(options):
  with enable_x64(True):
    agent, environment = make(dataclasses.replace(SMALL, entropy_cost=0.1, **options))
    params, unrolls = play(agent, environment, 3)
    params, unroll = double(params), double(unrolls[2])

    @jax.jit
    def loss(reward):
      return agent.loss(params._replace(reward=reward), unroll)[0]

    flat, unravel = jax.flatten_util.ravel_pytree(params.reward)
    gradient, _ = jax.flatten_util.ravel_pytree(jax.jit(jax.grad(loss))(params.reward))
    assert np.abs(gradient).max() > 1e-4
    for seed in range(4):
      direction = jax.random.normal(jax.random.key(seed), flat.shape, flat.dtype)
      direction /= jnp.linalg.norm(direction)
      step = 1e-5 * direction
      difference = (loss(unravel(flat + step)) - loss(unravel(flat - step))) / 2e-5
      assert abs(difference - gradient @ direction) < 1e-9


def bandit(agent, actions, rewards):
  """Returns the unroll of a whole lifetime of pulls, `[1, T+1, ...]`."""
  num_pulls = len(actions)
  step_type = np.asarray([FIRST, *[MID] * (num_pulls - 1), LAST])
  observation = np.asarray([[1, 0], *[[1, 1]] * num_pulls], np.float64)
  timestep = Timestep(
    step_type,
    np.asarray([0, *[rewards[a] for a in actions]], np.float64),
    np.asarray([1] * num_pulls + [0], np.float64),
    observation,
  )
  keys = jax.random.split(jax.random.key(7), num_pulls + 1)
  extras = {
    'policy_key': jax.random.key_data(keys),
    'intrinsic_reward': np.zeros(num_pulls + 1),
  }
  action = np.asarray([*actions, 0], np.int32)
  version = np.zeros(num_pulls + 1, np.int32)
  rows = jax.tree.map(lambda x: x[None], (timestep, action, extras, version))
  return Unroll(*rows, double(agent.initial_core_state(1)), np.zeros(1, np.int32))


@pytest.mark.nightly  # The test above has the gradient of the loss.
def test_the_outer_gradient_in_expectation_is_that_of_the_expected_lifetime_return():
  rewards = 0.3, -0.8
  config = dataclasses.replace(SMALL, inner_period=1, discount=1.0)
  specs = lifetimes.LifetimeObservation(1), dm_env.specs.DiscreteArray(2)
  with enable_x64(True):
    agent = IntrinsicRewards(config, *specs)
    params = double(jax.jit(agent.init)(jax.random.key(0)).params)
    pulls = list(itertools.product(range(2), repeat=3))
    unrolls = [bandit(agent, actions, rewards) for actions in pulls]
    batch = jax.tree.map(lambda *x: jnp.concatenate(x), *unrolls)
    _, theta = agent.inner.policy.draw(jax.random.wrap_key_data(batch.extras['policy_key'][0, 0]))

    def probability(reward, actions):
      """Returns the probability of a sequence, with the inner updates written out."""
      memory, policy = jnp.zeros((1, config.gru_size)), theta[0].astype(np.float64)
      memory, _ = agent.inner._reward.apply(reward, memory, jnp.zeros((1, 6)).at[0, 4].set(1.0))
      chance = 1.0
      for action in actions:
        probs = jax.nn.softmax(policy)
        chance *= probs[action]
        arms = [float(action == 0), float(action == 1)]
        inputs = jnp.asarray([[1.0, *arms, 1.0, 1.0, rewards[action]]])
        memory, intrinsic = agent.inner._reward.apply(reward, memory, inputs)
        policy += config.inner_learning_rate * intrinsic[0] * (jnp.eye(2)[action] - probs)
      return chance

    def expected_return(reward):
      return sum(probability(reward, a) * sum(rewards[x] for x in a) for a in pulls)

    @jax.jit
    def gradients(params, unrolls):
      """Returns the gradient for each lifetime."""
      alone = jax.tree.map(lambda x: x[:, None], unrolls)
      return jax.vmap(lambda u: jax.grad(lambda p: agent.loss(p, u)[0])(params).reward)(alone)

    chances = jax.jit(lambda r: jnp.stack([probability(r, a) for a in pulls]))(params.reward)
    np.testing.assert_allclose(chances.sum(), 1.0, atol=1e-14)
    # The loss is a mean over three transitions, to be minimised.
    in_expectation = jax.tree.map(
      lambda x: -3.0 * jnp.tensordot(chances, x, 1), gradients(params, batch)
    )
    exact = jax.jit(jax.grad(expected_return))(params.reward)
    sizes = jax.tree.map(lambda x: jnp.abs(x).max(), exact)
    assert max(jax.tree.leaves(sizes)) > 1e-3
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), in_expectation, exact
    )


@pytest.mark.slow
def test_one_inner_update_gives_the_reward_no_gradient():
  config = dataclasses.replace(SMALL, inner_updates=1)
  # The rows of a lifetime are a multiple of those of an unroll, so each begins with a trajectory.
  agent, environment = make(config, lifetime_steps=11)
  params, unrolls = play(agent, environment, 6)
  # That there is one after three updates, the differences above show.
  gradient = jax.jit(jax.grad(lambda p, u: agent.loss(p, u)[0]))
  for unroll in unrolls:
    found = gradient(params, unroll)
    assert all((x == 0).all() for x in jax.tree.leaves(found.reward))
    assert any((x != 0).any() for x in jax.tree.leaves(found.value))


@pytest.mark.slow
def test_the_extrinsic_and_the_count_based_reward():
  extrinsic, environment = make(dataclasses.replace(SMALL, inner_reward='extrinsic'))
  params, unrolls = play(extrinsic, environment, 2)
  assert params.reward == {}
  timestep, _, extras = rows_of(unrolls)
  np.testing.assert_array_equal(extras['intrinsic_reward'], timestep.reward)

  counting, _ = make(dataclasses.replace(SMALL, inner_reward='count', count_bonus=0.4))
  timestep, action, extras = rows_of(play(counting, environment, 2)[1])
  seen = lifetimes.features(timestep.observation).argmax(-1)
  for b in range(4):
    visits = {}
    for t in range(len(action[b])):
      if timestep.step_type[b, t] == FIRST:
        visits = {}
        continue
      pair = seen[b, t - 1], action[b, t - 1]
      visits[pair] = visits.get(pair, 0) + 1
      bonus = 0.4 / np.sqrt(visits[pair])
      found = extras['intrinsic_reward'][b, t] - timestep.reward[b, t]
      assert found == pytest.approx(bonus, abs=1e-6)


@pytest.mark.parametrize('outer_objective', ['lifetime', 'episode'])
@pytest.mark.slow
def test_the_value_learns_the_return_of_lifetime_or_inner_episode(outer_objective):
  agent, environment = make(
    dataclasses.replace(SMALL, outer_objective=outer_objective, discount=0.5)
  )
  params, unrolls = play(agent, environment, 2)
  unroll = unrolls[1]
  _, metrics = jax.jit(agent.loss)(params, unroll)
  values = jax.device_get(jax.jit(agent.replay)(params, unroll).values)
  timestep = jax.device_get(unroll.timestep)
  ended = lifetimes.ended(timestep.observation)
  targets = []
  for b in range(4):
    target = values[-1, b]
    for t in reversed(range(9)):
      if timestep.step_type[b, t] == LAST:
        target = values[t, b]
        continue
      continues = timestep.discount[b, t + 1] * (
        outer_objective == 'lifetime' or not ended[b, t + 1]
      )
      target = timestep.reward[b, t + 1] + 0.5 * continues * target
      targets.append(target)
  assert metrics['target_value'] == pytest.approx(np.mean(targets), abs=1e-6)


def test_it_needs_lifetimes():
  box = dm_env.specs.BoundedArray((4,), np.float32, 0, 1)
  with pytest.raises(ValueError, match='an environment whose episode is a lifetime'):
    IntrinsicRewards(SMALL, box, dm_env.specs.DiscreteArray(2))
