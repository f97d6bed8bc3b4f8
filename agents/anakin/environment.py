"""The environment interface of Anakin: two pure functions and two specs."""

from __future__ import annotations

from typing import Any, Protocol

import dm_env.specs
import jax
import jax.numpy as jnp

from agents.anakin import work
from agents.types import FIRST, LAST, MID, Array, Nest, Timestep

# A reset that computes more than this many times what a step does is not computed in every step.
_CHEAP_RESET = 2
# Expensive resets are computed for one in so many of the environments at a time.
_SHARE = 64


class JaxEnvironment(Protocol):
  """One environment, written in JAX. Its methods are pure; Anakin maps them over a batch.

  It may also have `restart(state, key)`, which `next_row` calls in place of `reset` after an episode
  with its last state, and `evaluation`, the environment that evaluators play in its place.

  A state is any pytree of arrays, such as a NamedTuple or a dataclass that is registered with JAX. Typed
  PRNG keys are arrays too. Both methods return states with the same structure, shapes and dtypes. Use
  `begin_episode` and `transition` to make the timesteps.
  """

  observation_spec: Nest
  action_spec: dm_env.specs.Array

  def reset(self, key: Array) -> tuple[Any, Timestep]:
    """Returns the state and the FIRST row of an episode.

    Args:
      key: a typed PRNG key.
    """

  def step(self, state: Any, action: Array, key: Array) -> tuple[Any, Timestep]:
    """Returns the next state and its row, MID or LAST; the result is discarded after a LAST row.

    Args:
      state: the state of the previous row.
      action: one action that conforms to the action spec.
      key: a typed PRNG key.
    """


def begin_episode(observation: Nest) -> Timestep:
  """Returns the FIRST row of an episode."""
  return Timestep(jnp.asarray(FIRST), jnp.float32(0), jnp.float32(1), observation)


def transition(
  observation: Nest, reward: Array, terminated: Array, truncated: Array | bool = False
) -> Timestep:
  """Returns a MID or LAST row.

  Args:
    observation: after the step; at an episode end its last one, not the first of the next episode.
    reward: raw.
    terminated: bool `[]`, whether the episode ends in a terminal state: LAST with discount 0.
    truncated: bool `[]`, whether the episode is cut off in any other state: LAST with discount 1.
  """
  terminated = jnp.asarray(terminated, bool)
  return Timestep(
    step_type=jnp.where(terminated | truncated, LAST, MID).astype(jnp.uint8),
    reward=jnp.asarray(reward, jnp.float32),
    discount=1.0 - terminated.astype(jnp.float32),
    observation=observation,
  )


def evaluated(environment: JaxEnvironment) -> JaxEnvironment:
  """Returns the environment that evaluators play: its `evaluation`, or the environment itself."""
  return getattr(environment, 'evaluation', environment)


def next_row(
  environment: JaxEnvironment, state: Any, step_type: Array, action: Array, key: Array
) -> tuple[Any, Timestep]:
  """Steps an environment, or begins its next episode if the previous row was LAST.

  Args:
    environment: the environment.
    state: the state of the previous row.
    step_type: uint8 `[]`, of the previous row.
    action: the action for the previous row; ignored if that was LAST. The environment gets it in the
      dtype of its spec.
    key: a typed PRNG key.
  """
  started, stepped = _restart(environment, state, key), _step(environment, state, action, key)
  return jax.tree.map(lambda a, b: jnp.where(step_type == LAST, a, b), started, stepped)


def next_rows(
  environment: JaxEnvironment, states: Any, step_types: Array, actions: Array, keys: Array
) -> tuple[Any, Timestep]:
  """Returns the same as `next_row` of each environment of a batch, at the cost of what happens.

  `next_row` computes a reset in every step, since a batch has no branches. That is fastest as long as a
  reset is about as cheap as a step. One that is expensive by comparison, such as the generation of a
  world, is computed only for the environments whose episode begins: a loop takes them in groups. Each
  has its own key either way, so the rows are the same, and no two environments share a reset.

  Args:
    environment: the environment.
    states: of the previous rows, `[B, ...]` per leaf.
    step_types: uint8 `[B]`.
    actions: `[B, ...]`.
    keys: typed PRNG keys, `[B]`.
  """
  one = jax.eval_shape(lambda *batch: jax.tree.map(lambda x: x[0], batch), states, actions, keys)
  if has_cheap_reset(environment, *one):
    return jax.vmap(lambda *args: next_row(environment, *args))(states, step_types, actions, keys)
  num_envs = len(step_types)
  group = -(-num_envs // _SHARE)
  begins = step_types == LAST
  num_begin = jnp.sum(begins)
  (order,) = jnp.nonzero(begins, size=num_envs + group, fill_value=num_envs)

  def begin(i: Array, rows: tuple[Any, Timestep]) -> tuple[Any, Timestep]:
    # Behind the last it is B, which no environment has: that is clipped here, and dropped below.
    which = jax.lax.dynamic_slice_in_dim(order, i * group, group)
    before, own_keys = jax.tree.map(lambda x: x.at[which].get(mode='clip'), (states, keys))
    started = jax.vmap(lambda *args: _restart(environment, *args))(before, own_keys)
    return jax.tree.map(lambda x, y: x.at[which].set(y, mode='drop'), rows, started)

  stepped = jax.vmap(lambda *args: _step(environment, *args))(states, actions, keys)
  return jax.lax.fori_loop(0, -(-num_begin // group), begin, stepped)


def has_cheap_reset(environment: JaxEnvironment, state: Any, action: Array, key: Array) -> bool:
  """Returns whether a reset computes no more than some two steps do; arguments may be shapes."""
  reset = work.elements(lambda *args: _restart(environment, *args), state, key)
  step = work.elements(lambda *args: _step(environment, *args), state, action, key)
  return reset <= _CHEAP_RESET * step


def _restart(environment: JaxEnvironment, state: Any, key: Array) -> tuple[Any, Timestep]:
  if hasattr(environment, 'restart'):
    return environment.restart(state, key)
  return environment.reset(key)


def _step(
  environment: JaxEnvironment, state: Any, action: Array, key: Array
) -> tuple[Any, Timestep]:
  action = action.astype(jax.dtypes.canonicalize_dtype(environment.action_spec.dtype))
  return environment.step(state, action, key)


def as_arrays(state: Nest) -> Nest:
  """Returns a state without Python numbers and weak types, so that its dtypes are always the same."""
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), state)
