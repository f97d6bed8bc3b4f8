"""Learning rates over a run, and the first steps of the optimizers."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.actor_critic.config import ActorCriticConfig
from agents.optimizers import Optimizer, make_optimizer, make_schedule, with_count
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from tests.agents.recording import ACTION_SPEC, OBSERVATION_SPEC, make_unrolls

CONFIG = ActorCriticConfig(learning_rate=2.0, max_gradient_norm=0.0)


def rates(num_steps, **options):
  schedule = make_schedule(dataclasses.replace(CONFIG, **options))
  return [float(schedule(t)) for t in range(num_steps)]


def decaying(schedule, steps, warmup=0):
  return {
    'learning_rate_schedule': schedule,
    'learning_rate_decay_steps': steps,
    'learning_rate_warmup_steps': warmup,
  }


def test_a_constant_rate_stays():
  assert rates(3) == [2.0, 2.0, 2.0] and float(make_schedule(CONFIG)(10**6)) == 2.0


def test_a_linear_schedule_falls_to_zero_and_stays_there():
  assert rates(6, **decaying('linear', 4)) == [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]


def test_a_cosine_schedule_falls_to_zero_and_stays_there():
  expected = [1 + math.cos(math.pi * t / 4) for t in range(5)] + [0.0]
  np.testing.assert_allclose(rates(6, **decaying('cosine', 4)), expected, atol=1e-6)


def test_a_rate_rises_before_it_stays_or_falls():
  assert rates(6, learning_rate_warmup_steps=4) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
  # The decay has the steps that the warm-up leaves.
  expected = [1.0, 2.0, 2.0, 1.5, 1.0, 0.5, 0.0, 0.0]
  assert rates(8, **decaying('linear', 6, warmup=2)) == expected
  expected = [1.0, 2.0] + [1 + math.cos(math.pi * t / 4) for t in range(5)]
  np.testing.assert_allclose(rates(7, **decaying('cosine', 6, warmup=2)), expected, atol=1e-6)


@pytest.mark.parametrize('name', ['linear', 'cosine'])
def test_a_compiled_schedule_ends_at_exactly_zero(name):
  for steps in (7, 40, 75):
    options = decaying(name, steps)
    schedule = jax.jit(make_schedule(dataclasses.replace(CONFIG, learning_rate=2.5e-4, **options)))
    assert schedule(steps) == schedule(steps + 5) == 0.0 < schedule(steps - 1)


def first_steps(config, gradients, gradient_steps=1):
  """Returns the updates that the optimizer makes of these gradients, in turn."""
  optimizer = make_optimizer(config, gradient_steps)
  state, updates = optimizer.init(jnp.float32(0)), []
  for gradient in gradients:
    update, state = optimizer.update(jnp.float32(gradient), state)
    updates.append(float(update))
  return updates


def test_the_rate_is_the_same_within_a_learner_step():
  # Of equal gradients all steps of Adam are the learning rate.
  config = dataclasses.replace(CONFIG, **decaying('linear', 2))
  steps = first_steps(config, [3.0] * 7, gradient_steps=3)
  np.testing.assert_allclose(steps, [-2.0] * 3 + [-1.0] * 3 + [0.0], rtol=1e-4)


def test_radam_follows_the_mean_gradient_until_its_variance_is_known():
  """Liu et al. 2020, algorithm 2: the variance is used once rho is above 4; optax waits until 5."""
  steps = first_steps(dataclasses.replace(CONFIG, optimizer='radam'), [3.0] * 8)
  longest, expected = 2 / (1 - 0.999) - 1, []
  for t in range(1, 9):
    rho = longest - 2 * t * 0.999**t / (1 - 0.999**t)
    rectified = (rho - 4) * (rho - 2) * longest / ((longest - 4) * (longest - 2) * rho)
    expected.append(
      -2.0 * (math.sqrt(rectified) if rho > 5 else 3.0)
    )  # Equal ones are 3, and 3 / 3.
  assert -6.0 in expected and -0.2 < expected[-1] < 0
  np.testing.assert_allclose(steps, expected, rtol=2e-2)  # float32 loses digits of 1 - 0.999^t.


@pytest.mark.parametrize('optimizer', ['adam', 'radam', 'rmsprop'])
def test_a_new_optimizer_begins_at_the_rate_of_a_later_step(optimizer):
  config = dataclasses.replace(CONFIG, optimizer=optimizer, **decaying('linear', 10))
  optimizer = make_optimizer(config, gradient_steps=2)
  new = optimizer.init(jnp.zeros(()))
  first, _ = optimizer.update(jnp.ones(()), new)
  later, _ = optimizer.update(jnp.ones(()), with_count(new, 15))  # The eighth learner step of ten.
  np.testing.assert_allclose(later / first, 0.3, rtol=1e-6)


@pytest.mark.parametrize('name', ['linear', 'cosine'])
@pytest.mark.parametrize('steps', [10, 2**31 - 1])
def test_a_rate_has_ended_where_the_counter_of_learner_steps_wraps(name, steps):
  optimizer = Optimizer(dataclasses.replace(CONFIG, **decaying(name, steps)))
  found = [float(optimizer.learning_rate(jnp.int32(2**31 - 1) + i)) for i in range(3)]
  assert found == [0.0, 0.0, 0.0]


def test_an_optimizer_begins_at_the_end_of_its_schedule_after_more_steps_than_it_can_count():
  optimizer = make_optimizer(dataclasses.replace(CONFIG, **decaying('linear', 10)))
  update, _ = optimizer.update(jnp.ones(()), with_count(optimizer.init(jnp.zeros(())), 2**31 + 5))
  assert update == 0.0


@pytest.mark.parametrize('name', ['adam_b1', 'adam_b2', 'rmsprop_decay'])
def test_a_moment_that_forgets_nothing_is_rejected(name):
  with pytest.raises(ValueError, match=f'--{name} is 1.0: set it to a number from 0 to below 1'):
    dataclasses.replace(CONFIG, **{name: 1.0}).validate()


def test_a_schedule_ends_within_the_counter_of_the_optimizer():
  most = (2**31 - 1) // 6
  ppo = PPOConfig(num_epochs=2, num_minibatches=3, **decaying('linear', most, warmup=1))
  ppo.validate()
  for changes, name in (
    ({'learning_rate_decay_steps': most + 1}, 'decay'),
    ({'learning_rate_warmup_steps': most + 1}, 'warmup'),
  ):
    with pytest.raises(ValueError, match=f'--learning_rate_{name}_steps.*at most {most}'):
      dataclasses.replace(ppo, **changes).validate()


@pytest.mark.slow
def test_ppo_counts_learner_steps_and_continues_from_them_in_a_longer_run():
  """Learner steps of four gradient steps: the rate is 0 in the third, unless the run is longer."""
  rates, moved = [], []

  def agent(decay_steps):
    config = PPOConfig(
      unroll_length=4,
      mlp_sizes=(),
      num_epochs=2,
      num_minibatches=2,
      **decaying('linear', decay_steps),
    )
    return PPO(config, OBSERVATION_SPEC, ACTION_SPEC)

  state = agent(2).init(jax.random.key(0))
  unrolls = make_unrolls(agent(2), state, batch_size=4)
  for decay_steps, learner_steps in ((2, 3), (6, 4)):
    update = jax.jit(agent(decay_steps).update)
    for _ in range(learner_steps):
      before = state.params
      state, _, metrics = update(state, unrolls)
      rates.append(float(metrics['learning_rate']))
      difference = jax.tree.map(lambda a, b: a - b, state.params, before)
      moved.append(float(optax.tree.norm(difference)) > 0)
  np.testing.assert_allclose(rates, 2.5e-4 * np.array([1, 1 / 2, 0, 3 / 6, 2 / 6, 1 / 6, 0]))
  assert moved == [True, True, False, True, True, True, False]


@pytest.mark.parametrize(
  'place, step',
  [('inside', 3 / math.sqrt(0.9 + 0.1 * 9 + 0.5)), ('outside', 3 / (math.sqrt(0.1 * 9) + 0.5))],
)
def test_rmsprop_is_that_of_tensorflow_or_that_of_pytorch(place, step):
  config = dataclasses.replace(
    CONFIG, optimizer='rmsprop', rmsprop_decay=0.9, rmsprop_eps=0.5, rmsprop_eps_place=place
  )
  np.testing.assert_allclose(first_steps(config, [3.0]), [-2.0 * step], rtol=1e-6)


def test_adam_takes_its_options():
  config = dataclasses.replace(CONFIG, adam_b1=0.5, adam_b2=0.75, adam_eps=1.0)
  # Means after two gradients, 4 and 2, over 1 - decay^2; of the first only itself.
  mean = (0.5 * 0.5 * 4 + 0.5 * 2) / (1 - 0.5**2)
  square = (0.75 * 0.25 * 16 + 0.25 * 4) / (1 - 0.75**2)
  expected = [-2.0 * 4 / (4 + 1), -2.0 * mean / (math.sqrt(square) + 1)]
  np.testing.assert_allclose(first_steps(config, [4.0, 2.0]), expected, rtol=1e-6)


def test_gradients_are_clipped_by_their_global_norm():
  config = dataclasses.replace(CONFIG, adam_eps=1e6, learning_rate=1e6, max_gradient_norm=1.0)
  optimizer = make_optimizer(config)
  gradients = {'a': jnp.array([3.0]), 'b': jnp.array([0.0, 4.0])}
  updates, _ = optimizer.update(gradients, optimizer.init(gradients))
  np.testing.assert_allclose(updates['a'], [-0.6], rtol=1e-5)
  np.testing.assert_allclose(updates['b'], [0.0, -0.8], rtol=1e-5)


def test_weight_decay_is_a_share_of_the_learning_rate_whatever_the_gradient():
  params, gradient = jnp.float32([3.0, -1.0]), jnp.float32([1e3, 0.0])

  def step(**options):
    optimizer = make_optimizer(dataclasses.replace(CONFIG, **options))
    return optimizer.update(gradient, optimizer.init(params), params)[0]

  np.testing.assert_allclose(step(weight_decay=0.1) - step(), -2.0 * 0.1 * params, rtol=1e-5)
  with pytest.raises(ValueError, match=r'^--weight_decay is 0\.1: set it to 0, or use'):
    dataclasses.replace(CONFIG, optimizer='rmsprop', weight_decay=0.1).validate()
