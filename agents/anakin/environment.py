"""What Anakin asks of an environment: two pure functions and two specs."""

from __future__ import annotations

from typing import Protocol

import dm_env.specs
import jax
import jax.numpy as jnp

from agents.types import FIRST, LAST, MID, Array, Nest, Timestep


class JaxEnvironment(Protocol):
  """One environment, written in JAX. Its methods are pure; Anakin maps them over a batch.

  States are nests of arrays of the same shapes and dtypes, whichever method returned them.
  `begin_episode` and `transition` make the timesteps.
  """

  observation_spec: dm_env.specs.Array
  action_spec: dm_env.specs.Array

  def reset(self, key: Array) -> tuple[Nest, Timestep]:
    """Returns the state and the FIRST row of an episode.

    Args:
      key: a typed PRNG key.
    """

  def step(self, state: Nest, action: Array, key: Array) -> tuple[Nest, Timestep]:
    """Returns the next state and its row, MID or LAST; never called after a LAST row.

    Args:
      state: what the previous row came with.
      action: one action, as the action spec says.
      key: a typed PRNG key.
    """


def begin_episode(observation: Array) -> Timestep:
  """Returns the FIRST row of an episode."""
  return Timestep(jnp.asarray(FIRST), jnp.float32(0), jnp.float32(1), observation)


def transition(
  observation: Array, reward: Array, terminated: Array, truncated: Array | bool = False
) -> Timestep:
  """Returns a MID or LAST row.

  Args:
    observation: after the step; where the episode ends, its last one and not the next one's first.
    reward: raw.
    terminated: bool `[]`, whether there is nothing more to gain: LAST with discount 0.
    truncated: bool `[]`, whether the episode ends though there is: LAST with discount 1.
  """
  terminated = jnp.asarray(terminated, bool)
  return Timestep(
    step_type=jnp.where(terminated | truncated, LAST, MID).astype(jnp.uint8),
    reward=jnp.asarray(reward, jnp.float32),
    discount=1.0 - terminated.astype(jnp.float32),
    observation=observation,
  )


def next_row(
  environment: JaxEnvironment, state: Nest, step_type: Array, action: Array, key: Array
) -> tuple[Nest, Timestep]:
  """Steps an environment, or begins its next episode where the last row was LAST.

  Args:
    environment: whose functions to call.
    state: what the previous row came with.
    step_type: uint8 `[]`, of the previous row.
    action: the answer to the previous row; without effect where that was LAST.
    key: a typed PRNG key.
  """
  started, stepped = environment.reset(key), environment.step(state, action, key)
  return jax.tree.map(lambda a, b: jnp.where(step_type == LAST, a, b), started, stepped)
