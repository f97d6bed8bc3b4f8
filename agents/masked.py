"""Sums and means over the transitions of a batch, without those out of LAST rows."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import LAST, Array


def transitions(step_type: Array) -> Array:
  """Returns which rows begin a transition, bool, of the shape of `step_type`: all but LAST rows."""
  return step_type != LAST


def total(x: Array, valid: Array) -> Array:
  """Returns the sum of `x` where `valid`, `[]`; neither value nor gradient depends on the rest."""
  return jnp.sum(jnp.where(valid, x, 0.0))


def mean(x: Array, valid: Array) -> Array:
  """Returns the mean of `x` where `valid`, `[]`; 0 if no entry is valid."""
  return total(x, valid) / jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)
