"""Q-values of actions."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array


def select(q: Array, action: Array) -> Array:
  """Returns Q of the actions, `[...]`, for Q-values `[..., A]` and integer actions `[...]`."""
  return jnp.take_along_axis(q, action[..., None].astype(jnp.int32), axis=-1)[..., 0]
