"""Priorities of unrolls and importance weights of a batch, as prioritized replay has them."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array


def unroll_priorities(td_errors: Array, valid: Array, *, eta: float, floor: float) -> Array:
  """Returns eta max_t |delta_t| + (1 - eta) mean_t |delta_t| (R2D2, section 2.3), `[B]`.

  Args:
    td_errors: `[U, B]`, delta.
    valid: bool `[U, B]`; max and mean exclude transitions where it is false.
    eta: in [0, 1].
    floor: lower bound on the result.
  """
  absolute = jnp.where(valid, jnp.abs(td_errors), 0.0)
  mean = jnp.sum(absolute, axis=0) / jnp.maximum(jnp.sum(valid, axis=0), 1)
  return jnp.maximum(eta * jnp.max(absolute, axis=0) + (1.0 - eta) * mean, floor)


def importance_weights(probabilities: Array | None, exponent: float, batch_size: int) -> Array:
  """Returns (1 / (N P_i))^exponent over the largest in the batch (Schaul et al. 2016, section 3.4).

  The size N of the replay cancels. The maximum is over the whole batch, also if it is sharded.

  Args:
    probabilities: float32 `[B]`, P, above 0; None for equal ones.
    exponent: beta in [0, 1].
    batch_size: B.

  Returns:
    float32 `[B]` in (0, 1].
  """
  if probabilities is None:
    return jnp.ones(batch_size, jnp.float32)
  return (jnp.min(probabilities) / probabilities) ** exponent
