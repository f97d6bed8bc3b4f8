"""Random rows, unrolls as actors would have recorded them, and what holds for every agent's act."""

from __future__ import annotations

import functools

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.types import FIRST, LAST, MID, Timestep, Unroll

NUM_ACTIONS = 4
OBSERVATION_SPEC = dm_env.specs.Array((3, 2), np.float32)
ACTION_SPEC = dm_env.specs.DiscreteArray(NUM_ACTIONS, dtype=np.int32)
LOW, HIGH = np.array([-2.0, 0.0, 5.0], np.float32), np.array([2.0, 0.1, 7.0], np.float32)
CONTINUOUS_ACTION_SPEC = dm_env.specs.BoundedArray((3,), np.float32, LOW, HIGH)


def sharpened(agent, seed=0):
  """Returns a learner state of an actor-critic whose policy differs from row to row."""
  state = jax.jit(agent.init)(jax.random.key(seed))
  logits = state.params['params']['head']['logits']
  logits['kernel'] = (100.0 if agent.distribution.has_draws else 300.0) * logits['kernel']
  return state


@functools.lru_cache(maxsize=16)
def compiled(agent, method):
  """Returns a method of an agent as nodes call it: compiled, and once for all tests of a file."""
  return jax.jit(getattr(agent, method))


def random_rows(num_rows, batch_size, seed=0):
  """Random timesteps `[T, B]`, in which a LAST comes about every fourth row and a FIRST next."""
  rng = np.random.default_rng(seed)
  step_type = np.where(rng.uniform(size=(num_rows, batch_size)) < 0.25, LAST, MID)
  step_type[0] = FIRST
  for t in range(1, num_rows):
    step_type[t] = np.where(step_type[t - 1] == LAST, FIRST, step_type[t])
  started = step_type == FIRST
  discount = np.where(step_type == LAST, rng.integers(0, 2, step_type.shape), 1)
  return Timestep(
    jnp.asarray(step_type),
    jnp.asarray(np.where(started, 0, rng.normal(size=step_type.shape)), jnp.float32),
    jnp.asarray(discount, jnp.float32),
    jnp.asarray(rng.normal(size=(*step_type.shape, 3, 2)), jnp.float32),
  )


def play(agent, params, timesteps, exploration, row_keys=None):
  """Acts on rows one by one; returns their answers `[T, B]` and the core states before each row.

  `row_keys`, `[T, B]`, are the keys of the rows; None for any.
  """
  # In NumPy, because JAX compiles a function for every slice and every stack.
  timesteps = jax.device_get(timesteps)
  num_rows, batch_size = timesteps.step_type.shape
  core_state, answers, states = agent.initial_core_state(batch_size), [], []
  for t in range(num_rows):
    states.append(core_state)
    keys = jax.random.split(jax.random.key(t), batch_size) if row_keys is None else row_keys[t]
    timestep = jax.tree.map(lambda x, t=t: x[t], timesteps)
    answer = compiled(agent, 'act')(params, core_state, timestep, exploration, keys)
    core_state = answer.core_state
    answers.append(jax.device_get(answer._replace(core_state=None)))
  return jax.tree.map(lambda *x: np.stack(x), *answers), states


def make_unrolls(agent, state, batch_size=5, start=3, seed=0, row_keys=None, show=lambda x: x):
  """Returns unrolls `[B, L]` as actors would have recorded them, from the middle of a stream.

  `row_keys`, `[start + L, B]`, are the keys of all rows; None for any. `show` maps the observations of
  `random_rows` to what the agent sees.
  """
  timesteps = random_rows(start + agent.unroll_rows, batch_size, seed)
  timesteps = timesteps._replace(observation=show(timesteps.observation))
  answers, states = play(agent, state.params, timesteps, jnp.ones(batch_size), row_keys)
  rows = (timesteps, answers.action, answers.extras, np.zeros(answers.action.shape, np.int32))
  rows = jax.tree.map(lambda x: jnp.asarray(np.swapaxes(x[start:], 0, 1)), jax.device_get(rows))
  return Unroll(*rows, core_state=states[start], environment_id=jnp.arange(batch_size))


def batch_of_requests(agent, batch_size=8):
  timestep = jax.tree.map(lambda x: x[2], random_rows(3, batch_size))
  core_state = jax.tree.map(
    lambda x: jax.random.normal(jax.random.key(1), x.shape).astype(x.dtype),
    agent.initial_core_state(batch_size),
  )
  exploration = jnp.arange(batch_size) % 2
  keys = jax.random.split(jax.random.key(2), batch_size)
  return core_state, timestep, exploration.astype(jnp.float32), keys


def check_answers_depend_on_their_own_row_only(agent, params):
  """Permutes a batch of requests, then changes some; asserts that the other answers stay."""
  act = compiled(agent, 'act')
  requests = batch_of_requests(agent)
  answers = act(params, *requests)

  def check(actual, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), actual, expected)

  order = np.random.default_rng(0).permutation(8)
  permuted = act(params, *jax.tree.map(lambda x: x[order], requests))
  check(permuted, jax.tree.map(lambda x: x[order], answers))

  other_keys = jax.random.split(jax.random.key(7), 8)
  kept = np.array([0, 3, 4])
  others = (
    *jax.tree.map(lambda x: x[::-1].at[kept].set(x[kept]), requests[:3]),
    other_keys.at[kept].set(requests[3][kept]),
  )
  changed = act(params, *others)
  check(*(jax.tree.map(lambda x: x[kept], a) for a in (changed, answers)))
  for name, value in answers.extras.items():
    assert not np.allclose(changed.extras[name], value)
