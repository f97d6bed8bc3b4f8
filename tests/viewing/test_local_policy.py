import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from agents.agent import ActOutput
from agents.seeding import Seed
from tests.agents.hidden_labels import Guessing, HiddenLabels, most_guessed
from viewing.jax_batch import JaxBatch
from viewing.local_policy import LocalPolicy


class Counting:
  """Counts its calls in its core state, and draws a number."""

  evaluation_exploration = 0.25

  def exploration(self, num_environments):
    return np.linspace(0.5, 1, num_environments, dtype=np.float32)

  def initial_core_state(self, batch_size):
    return jnp.zeros(batch_size, jnp.int32)

  def act(self, params, core_state, timestep, exploration, keys):
    drawn = jax.vmap(lambda key: jax.random.uniform(key))(keys)
    columns = core_state, exploration, drawn, timestep.reward + params
    return ActOutput(jnp.stack(columns, axis=1), {}, core_state + 1)


def answers(seed, count=3, **options):
  policy = LocalPolicy(Counting(), 10.0, num_envs=2, seed=Seed(seed), **options)
  rewards = np.array([1, 2], np.float32)
  timestep = dm_env.TimeStep(
    np.ones(2, np.uint8), rewards, np.ones(2, np.float32), np.zeros((2, 1))
  )
  received = []
  for _ in range(count):
    policy.send(timestep)
    received.append(policy.receive())
  return np.stack(received)


def test_it_carries_the_core_state_and_acts_as_evaluators_do():
  received = answers(seed=0)
  assert received[:, :, 0].tolist() == [[0, 0], [1, 1], [2, 2]]
  assert (received[:, :, 1] == 0.25).all()
  assert received[:, :, 3].tolist() == [[11, 12]] * 3


def test_it_samples_with_the_exploration_of_training():
  assert answers(seed=0, sample=True)[:, :, 1].tolist() == [[0.5, 1]] * 3


def test_every_environment_and_step_has_random_numbers_of_its_own_which_the_seed_decides():
  drawn = answers(seed=0)[:, :, 2]
  assert len(set(drawn.ravel().tolist())) == 6
  assert (answers(seed=0)[:, :, 2] == drawn).all()
  assert (answers(seed=1)[:, :, 2] != drawn).all()


def test_nothing_that_an_environment_draws_is_what_the_policy_draws_from_the_same_seed():
  environment = JaxBatch(HiddenLabels(), 64, Seed(3))
  policy = LocalPolicy(Guessing(), (), 64, Seed(3))
  timestep, labels, actions = environment.reset(), [], []
  for _ in range(50):
    policy.send(timestep)
    labels.append(timestep.observation)
    actions.append(policy.receive())
    timestep = environment.step(actions[-1])
  guessed = most_guessed(np.stack(labels, axis=1), np.stack(actions, axis=1))
  assert abs(guessed - 0.25) < 0.04
