"""An environment of labels that cannot be guessed, unless its random numbers are the agent's, too."""

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.agent import ActOutput, Agent
from agents.anakin.environment import begin_episode, transition

NUM_ACTIONS = 4
UNIFORM = jnp.zeros(NUM_ACTIONS)


def _labels(key):
  """Draws labels in each way in which environments draw, as the agent below draws its actions."""
  derived = [key, *jax.random.split(key), *jax.random.split(key, 3)]
  derived += [jax.random.fold_in(key, i) for i in range(4)]
  derived += [*jax.random.split(derived[1])]  # As gymnax does within its own steps.
  labels = jax.vmap(lambda key: jax.random.categorical(key, UNIFORM))(jnp.stack(derived))
  return labels.astype(jnp.float32)


NUM_LABELS = jax.eval_shape(_labels, jax.eval_shape(lambda: jax.random.key(0))).size


class HiddenLabels:
  """Observations are the row's labels, which the agent does not look at. Episodes have 5 steps."""

  observation_spec = dm_env.specs.Array((NUM_LABELS,), np.float32, 'observation')
  action_spec = dm_env.specs.DiscreteArray(NUM_ACTIONS, np.int32, 'action')

  def reset(self, key):
    return jnp.int32(0), begin_episode(_labels(key))

  def step(self, state, action, key):
    return state + 1, transition(_labels(key), jnp.float32(0), state + 1 == 5)


class Guessing(Agent):
  """Every action is as likely as any other."""

  unroll_rows, unroll_period = 101, 100
  evaluation_exploration = 1.0

  def init(self, key):
    raise NotImplementedError

  def initial_core_state(self, batch_size):
    return {}

  def exploration(self, num_environments):
    return np.ones(num_environments, np.float32)

  def act(self, params, core_state, timestep, exploration, keys):
    action = jax.vmap(lambda key: jax.random.categorical(key, UNIFORM))(keys)
    return ActOutput(action.astype(jnp.int32), {}, core_state)

  def update(self, state, unrolls, probabilities):
    raise NotImplementedError


def most_guessed(labels, actions):
  """Returns the share of rows in which an action is a label, where that is furthest from chance.

  Args:
    labels: `[B, T, NUM_LABELS]`.
    actions: `[B, T]`, those of the same rows.
  """
  shares = []
  for rows in (-1, 0, 1):  # The labels of the row before, of this one and of the next.
    now = np.roll(labels, rows, axis=1)[:, 1:-1]
    shares += [*np.mean(now == actions[:, 1:-1, None], axis=(0, 1))]
  return max(shares, key=lambda share: abs(share - 1 / NUM_ACTIONS))
