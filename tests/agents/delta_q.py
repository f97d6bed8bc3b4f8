"""How far a replayed core state leads Q-values astray (R2D2, section 3)."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array


def delta_q(q_reference: Array, q_replayed: Array) -> Array:
  """Returns ||q_reference - q_replayed||_2 / |max q_reference|, `[T, B]`.

  The norm is over the actions of a row, the maximum over all actions and rows of an unroll. R2D2
  looks at the first and the last row after burn-in.

  Args:
    q_reference: `[T, B, A]`, from the core state that the agent was in.
    q_replayed: `[T, B, A]`, from the one that replay begins with: a stored one, or zeros.
  """
  scale = jnp.abs(jnp.max(q_reference, axis=(0, 2)))
  return jnp.linalg.norm(q_reference - q_replayed, axis=-1) / scale
