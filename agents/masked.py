"""Sums and means over the transitions of a batch, without those out of LAST rows."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import LAST, Array


def transitions(step_type: Array) -> Array:
  """Returns which rows begin a transition, bool, of the shape of `step_type`: all but LAST rows."""
  return step_type != LAST


def kept(x: Array, valid: Array) -> Array:
  """Returns `x` where `valid`, and zeros elsewhere, in the shape and dtype of `x`.

  A loss takes what it reads from rows through this before it computes with it. A masked sum alone is
  not enough: it passes a gradient of 0 back to what is not valid, and 0 times NaN is NaN.

  Args:
    x: `[*P, ...]`.
    valid: bool `[*P]`.
  """
  valid = valid.reshape(valid.shape + (1,) * (x.ndim - valid.ndim))
  return jnp.where(valid, x, jnp.zeros((), x.dtype))


def total(x: Array, valid: Array) -> Array:
  """Returns the sum of `x` where `valid`, `[]`; the gradient with respect to the rest is 0."""
  return jnp.sum(kept(x, valid))


def reduced(x: Array, valid: Array, reduction: str) -> Array:
  """Returns the mean or the total of `x` where `valid`, `[]`; `reduction` is 'mean' or 'sum'."""
  return mean(x, valid) if reduction == 'mean' else total(x, valid)


def mean(x: Array, valid: Array) -> Array:
  """Returns the mean of `x` where `valid`, `[]`; 0 if no entry is valid."""
  return total(x, valid) / jnp.maximum(jnp.sum(valid, dtype=jnp.float32), 1.0)
