"""The environment interface of Anakin: two pure functions and two specs."""

from __future__ import annotations

from typing import Protocol

import dm_env.specs
import jax
import jax.numpy as jnp

from agents.types import FIRST, LAST, MID, Array, Nest, Timestep


class JaxEnvironment(Protocol):
  """One environment, written in JAX. Its methods are pure; Anakin maps them over a batch.

  It may also have `restart(state, key)`, which `next_row` calls in place of `reset` after an episode
  with its last state, and `evaluation`, the environment that evaluators play in its place.

  Both methods return states with the same nest, shapes and dtypes. Use `begin_episode` and `transition`
  to make the timesteps.
  """

  observation_spec: Nest
  action_spec: dm_env.specs.Array

  def reset(self, key: Array) -> tuple[Nest, Timestep]:
    """Returns the state and the FIRST row of an episode.

    Args:
      key: a typed PRNG key.
    """

  def step(self, state: Nest, action: Array, key: Array) -> tuple[Nest, Timestep]:
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
  environment: JaxEnvironment, state: Nest, step_type: Array, action: Array, key: Array
) -> tuple[Nest, Timestep]:
  """Steps an environment, or begins its next episode if the previous row was LAST.

  Args:
    environment: the environment.
    state: the state of the previous row.
    step_type: uint8 `[]`, of the previous row.
    action: the action for the previous row; ignored if that was LAST. The environment gets it in the
      dtype of its spec.
    key: a typed PRNG key.
  """
  action = action.astype(jax.dtypes.canonicalize_dtype(environment.action_spec.dtype))
  restart = getattr(environment, 'restart', lambda state, key: environment.reset(key))
  started, stepped = restart(state, key), environment.step(state, action, key)
  return jax.tree.map(lambda a, b: jnp.where(step_type == LAST, a, b), started, stepped)
