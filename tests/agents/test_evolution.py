"""Evolution strategies, from their definition (Salimans et al. 2017)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from agents.agent import Agent
from agents.anakin.environment import begin_episode, transition
from agents.evolution import playing, strategy
from agents.evolution.agent import Evolution
from agents.evolution.config import EvolutionConfig
from agents.types import Timestep

ARRAY = specs.Array((3,), np.float32)
UNSEEN = np.zeros((1, 0), np.float32)  # The statistics of a part without `normalize_observations`.


def make_agent(actions=None, observations=ARRAY, **options):
  config = EvolutionConfig(**{'num_pairs': 16, 'mlp_sizes': (4,)} | options)
  return Evolution(config, observations, actions or specs.DiscreteArray(2))


@pytest.mark.parametrize(
  'returns, ranks',
  [
    ([[3.0, -1.0], [2.0, 10.0]], [[1 / 6, -1 / 2], [-1 / 6, 1 / 2]]),
    ([[1.0, 1.0]], [[0.0, 0.0]]),
    ([[5.0, 1.0], [1.0, 0.0]], [[1 / 2, 0.0], [0.0, -1 / 2]]),  # Ranks 3, 1.5, 1.5, 0 of 3.
  ],
)
def test_ranks_are_centred_and_equal_returns_share_one(returns, ranks):
  found = strategy.centred_ranks(jnp.array(returns))
  np.testing.assert_allclose(found, ranks, atol=1e-7)


def test_ranks_are_those_of_a_sort():
  returns = np.random.default_rng(0).permutation(40).astype(np.float32).reshape(20, 2) - 7
  order = np.argsort(np.argsort(returns.ravel()))
  expected = (order / 39 - 0.5).reshape(20, 2)
  np.testing.assert_allclose(strategy.centred_ranks(returns), expected, atol=1e-6)


def test_noise_is_rebuilt_from_its_seed_and_mirrored():
  seeds = strategy.seeds(jax.random.key(3), 5, 4)
  assert seeds.dtype == np.uint32 and len(np.unique(seeds, axis=0)) == 4
  alone = [np.asarray(strategy.noise(seed, 7)) for seed in np.asarray(seeds)]
  together = jax.jit(jax.vmap(lambda seed: strategy.noise(seed, 7)))(seeds)
  np.testing.assert_array_equal(alone, together)
  assert np.unique(together).size == 28

  vector = jnp.arange(7.0)
  plus, minus = strategy.perturbed(vector, seeds[2], 0.5)
  np.testing.assert_allclose(plus - vector, 0.5 * alone[2], atol=1e-6)
  np.testing.assert_allclose(plus + minus, 2 * vector, atol=1e-6)


def test_no_generation_and_no_run_repeats_a_seed():
  made = [strategy.seeds(jax.random.key(k), g, 8) for k in (1, 2) for g in range(3)]
  assert len(np.unique(np.concatenate(made), axis=0)) == 48
  again = strategy.seeds(jax.random.key(2), 1, 8)
  np.testing.assert_array_equal(again, made[4])


def test_noise_is_standard_normal_and_independent_of_the_key_of_the_episode():
  seed = strategy.seeds(jax.random.key(0), 0, 1)[0]
  drawn = np.asarray(strategy.noise(seed, 100_000))
  assert abs(drawn.mean()) < 0.02 and abs(drawn.std() - 1) < 0.01
  episode = np.asarray(jax.random.normal(strategy.episode_key(seed), (100_000,)))
  assert abs(np.corrcoef(drawn, episode)[0, 1]) < 0.02


def test_the_search_gradient_is_the_mean_of_mirrored_noise():
  seeds = strategy.seeds(jax.random.key(0), 0, 6)
  shaped = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)
  noise = np.array([strategy.noise(seed, 5) for seed in seeds])
  policies = np.stack([noise, -noise], axis=1)  # Of all twelve.
  expected = np.einsum('ps,psd->d', shaped, policies) / 12
  found = strategy.search_gradient(jnp.array(shaped), seeds, 5)
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_it_estimates_the_gradient_of_a_quadratic():
  num_pairs, sigma = 20_000, 0.3
  target, vector = jnp.array([1.0, -2.0, 0.5, 3.0]), jnp.array([0.0, 0.5, 0.5, -1.0])
  seeds = strategy.seeds(jax.random.key(7), 0, num_pairs)
  policies = jax.vmap(lambda seed: strategy.perturbed(vector, seed, sigma))(seeds)
  returns = -jnp.sum(jnp.square(policies - target), axis=-1)
  estimate = strategy.search_gradient(returns, seeds, 4) / sigma
  exact = -2 * (vector - target)
  # The variance of a term of pairs is |g|^2 + g_i^2: mirrored noise leaves none from the curvature.
  error = jnp.sqrt((jnp.sum(exact**2) + exact**2) / num_pairs)
  assert np.all(np.abs(estimate - exact) < 4 * error)


@pytest.mark.parametrize(
  'change', [lambda r: 3 * r - 100, jnp.exp, lambda r: r**3, lambda r: jnp.where(r > 0, 1e6 * r, r)]
)
def test_increasing_changes_of_the_returns_give_the_same_parameters(change):
  agent = make_agent()
  state = agent.init(jax.random.key(0))
  seeds = strategy.seeds(jax.random.key(1), 0, 16)
  returns = jnp.array(np.random.default_rng(2).integers(-4, 5, (16, 2)), jnp.float32)
  evolve = jax.jit(agent.evolve)
  first, changed, other = (
    evolve(state, seeds, each, UNSEEN)[0] for each in (returns, change(returns), -returns)
  )
  jax.tree.map(np.testing.assert_array_equal, first, changed)
  assert not np.array_equal(agent.flat(first.params), agent.flat(other.params))
  assert int(first.learner_steps) == 1


def test_without_differences_only_the_cost_of_parameters_acts():
  returns = jnp.zeros((16, 2))
  seeds = strategy.seeds(jax.random.key(1), 0, 16)
  for l2_cost in (0.0, 0.1):
    agent = make_agent(l2_cost=l2_cost)
    state = agent.init(jax.random.key(0))
    after, _ = agent.evolve(state, seeds, returns, UNSEEN)
    vector, after = agent.flat(state.params), agent.flat(after.params)
    if l2_cost:
      assert jnp.linalg.norm(after) < jnp.linalg.norm(vector)
    else:
      np.testing.assert_array_equal(after, vector)


def test_a_generation_climbs():
  agent = make_agent(learning_rate=0.02)
  state = agent.init(jax.random.key(0))
  target = agent.flat(state.params) + 1.0
  distance = lambda vector: jnp.sum(jnp.square(vector - target), axis=-1)  # noqa: E731

  @jax.jit
  def generation(state, seeds):
    policies = agent.perturbed(agent.flat(state.params), seeds)
    return agent.evolve(state, seeds, -distance(policies), UNSEEN)[0]

  for k in range(200):
    state = generation(state, strategy.seeds(jax.random.key(1), k, 16))
  assert distance(agent.flat(state.params)) < 0.1 * target.size


@pytest.mark.parametrize('core', ['none', 'lstm', 'lru'])
@pytest.mark.parametrize(
  'actions',
  [
    specs.DiscreteArray(3),
    specs.BoundedArray((2,), np.int32, 0, [1, 2]),
    specs.BoundedArray((2,), np.float32, [-1, 0], [1, 4]),
  ],
)
def test_it_acts_without_chance_in_every_kind_of_actions(actions, core):
  agent = make_agent(actions, core=core, core_size=4)
  state = agent.init(jax.random.key(0))
  count = 6
  observation = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
  timestep = Timestep(
    np.zeros(count, np.uint8), np.zeros(count, np.float32), np.ones(count, np.float32), observation
  )
  assert not agent.exploration(count).any() and isinstance(agent, Agent)
  found = []
  for seed in (1, 2):
    keys = jax.random.split(jax.random.key(seed), count)
    acted = agent.act(
      state.params, agent.initial_core_state(count), timestep, agent.exploration(count), keys
    )
    found.append(np.asarray(acted.action))
  np.testing.assert_array_equal(*found)
  assert found[0].shape == (count, *actions.shape)
  for action in found[0]:
    actions.validate(action.astype(actions.dtype))
  with pytest.raises(NotImplementedError, match='evolve'):
    agent.update(state, None, None)


def test_an_action_that_the_mask_forbids_is_never_taken():
  observations = {'x': ARRAY, 'action_mask': specs.Array((3,), bool)}
  agent = make_agent(specs.DiscreteArray(3), observations)
  params = agent.init(jax.random.key(0)).params
  masks = np.eye(3, dtype=bool)
  timestep = Timestep(
    np.zeros(3, np.uint8),
    np.zeros(3, np.float32),
    np.ones(3, np.float32),
    {'x': np.ones((3, 3), np.float32), 'action_mask': masks},
  )
  keys = jax.random.split(jax.random.key(0), 3)
  acted = agent.act(params, agent.initial_core_state(3), timestep, np.zeros(3), keys)
  np.testing.assert_array_equal(acted.action, [0, 1, 2])


class Fuse:
  """Burns for a random number of steps, and pays for action 1; beyond its end everything is nan."""

  observation_spec = ARRAY
  action_spec = specs.DiscreteArray(2)

  def reset(self, key):
    left = jax.random.randint(key, (), 1, 6)
    return left, begin_episode(jnp.ones(3))

  def step(self, left, action, key):
    left = left - 1
    return left, transition(jnp.ones(3), jnp.where(left < 0, jnp.nan, action), left == 0)


class Constant:
  """Acts by its parameter, an int32 `[]`."""

  def initial_core_state(self, batch_size):
    return {}

  def nothing_seen(self):
    return {}

  def having_seen(self, statistics, observation):
    return statistics

  def act(self, params, core_state, timestep, exploration, keys):
    action = jnp.broadcast_to(params, timestep.step_type.shape)
    return type('Output', (), {'action': action, 'core_state': core_state})


def test_each_policy_plays_one_whole_episode():
  keys = jax.random.split(jax.random.key(0), 20)
  params = jnp.arange(20, dtype=jnp.int32) % 2
  returns, lengths, _ = playing.play(Constant(), Fuse(), params, keys, 1000)
  assert set(np.asarray(lengths)) == {1, 2, 3, 4, 5}
  np.testing.assert_array_equal(returns, lengths * params)

  cut, cut_lengths, _ = playing.play(Constant(), Fuse(), params, keys, 3)
  np.testing.assert_array_equal(cut_lengths, np.minimum(lengths, 3))
  np.testing.assert_array_equal(cut, np.minimum(lengths, 3) * params)

  both = jnp.repeat(keys[:10], 2)  # Of pairs: the same episode for both policies.
  returns, lengths, _ = playing.play(Constant(), Fuse(), params, both, 1000)
  np.testing.assert_array_equal(lengths[::2], lengths[1::2])
  np.testing.assert_array_equal(returns[1::2], lengths[1::2])


def test_statistics_are_part_of_the_parameters_and_have_neither_noise_nor_gradient():
  agent = make_agent(normalize_observations=True, l2_cost=0.1)
  state, without = agent.init(jax.random.key(0)), make_agent(l2_cost=0.1)
  vector, unflatten = agent.flat(state.params), agent.unflatten(state.params)
  jax.tree.map(np.testing.assert_array_equal, unflatten(vector), state.params)
  assert jax.tree.structure(state.opt_state) == jax.tree.structure(
    without.init(jax.random.key(0)).opt_state
  )
  marked = jax.tree.map(lambda x: x, state.params)
  marked['observation_statistics']['mean'] = jnp.array([7.0, 8.0, 9.0])
  seeds = strategy.seeds(jax.random.key(1), 0, 16)
  policies = agent.perturbed(agent.flat(marked), seeds)
  assert policies.shape == (16, 2, vector.size)
  for policy in map(unflatten, policies.reshape(32, -1)):
    np.testing.assert_array_equal(policy['observation_statistics']['mean'], [7, 8, 9])
    np.testing.assert_array_equal(policy['observation_statistics']['variance'], [1, 1, 1])
  np.testing.assert_array_equal(
    policies[..., :-7], without.perturbed(agent.flat(state.params)[:-7], seeds)
  )


def test_a_generation_adds_what_its_parts_have_seen_to_the_statistics():
  agent = make_agent(normalize_observations=True)
  state = agent.init(jax.random.key(0))
  seeds = strategy.seeds(jax.random.key(1), 0, 16)
  returns = jnp.arange(32.0).reshape(16, 2)
  rows = np.random.default_rng(0).normal(1000.0, [1.0, 5.0, 0.1], (60, 3)).astype(np.float32)
  evolve, see = jax.jit(agent.evolve), jax.jit(agent.having_seen)

  def seen(parts):  # Each of two episodes.
    found = []
    for part in parts:
      episodes = []
      for episode in np.split(part, 2):
        statistics = agent.nothing_seen()
        for row in episode:
          statistics = see(statistics, row)
        episodes.append(statistics)
      found.append(agent.pooled(jax.tree.map(lambda *x: jnp.stack(x), *episodes)))
    return np.stack(found)

  for parts in (np.split(rows[:40], 4), np.split(rows[40:], 1)):
    state, _ = evolve(state, seeds, returns, seen(parts))
  found = state.params['observation_statistics']
  assert found['count'] == 60
  np.testing.assert_allclose(found['mean'], rows.mean(0), rtol=1e-6)
  np.testing.assert_allclose(found['variance'], rows.astype(np.float64).var(0), rtol=1e-2)


def test_the_policies_act_on_normalised_observations():
  agent, plain = make_agent(normalize_observations=True), make_agent()
  params = agent.init(jax.random.key(3)).params
  mean, variance = np.array([5.0, -3.0, 100.0]), np.array([4.0, 0.25, 900.0])
  params['observation_statistics'] = {
    'count': jnp.float32(10.0),
    'mean': jnp.asarray(mean, jnp.float32),
    'variance': jnp.asarray(variance, jnp.float32),
  }
  observation = np.random.default_rng(0).normal(mean, np.sqrt(variance), (50, 3))

  def act(agent, params, rows):
    timestep = Timestep(np.zeros(50, np.uint8), np.zeros(50), np.ones(50), rows.astype(np.float32))
    keys = jax.random.split(jax.random.key(0), 50)
    return agent.act(params, agent.initial_core_state(50), timestep, np.zeros(50), keys).action

  weights = {'params': params['params']}
  expected = act(plain, weights, (observation - mean) / np.sqrt(variance))
  np.testing.assert_array_equal(act(agent, params, observation), expected)
  assert len(set(np.asarray(expected))) == 2


def test_bytes_are_not_normalised():
  with pytest.raises(ValueError, match='--normalize_observations is for features'):
    make_agent(observations=specs.Array((8, 8, 1), np.uint8), normalize_observations=True)


def test_the_statistics_of_episodes_are_of_the_observations_before_their_ends():
  class Counting(Fuse):  # Observes how many steps are left.
    def reset(self, key):
      left, _ = super().reset(key)
      return left, begin_episode(jnp.full(3, left, jnp.float32))

    def step(self, left, action, key):
      return left - 1, transition(jnp.full(3, left - 1, jnp.float32), 0.0, left == 1)

  agent = make_agent(normalize_observations=True)
  params = agent.init(jax.random.key(0)).params
  params = jax.tree.map(lambda x: jnp.broadcast_to(x, (20, *x.shape)), params)
  keys = jax.random.split(jax.random.key(0), 20)
  _, lengths, seen = playing.play(agent, Counting(), params, keys, 1000)
  rows = np.concatenate([np.arange(1, n + 1) for n in np.asarray(lengths)])
  count, mean, variance = (np.asarray(x) for x in np.split(agent.pooled(seen), [1, 4]))
  assert count == len(rows)
  np.testing.assert_allclose(mean, rows.mean(), rtol=1e-5)
  np.testing.assert_allclose(variance, rows.var(), rtol=1e-5)
