"""Prioritized replay of unrolls: with what priority, and how it is corrected for.

The replay raises priorities to their exponent when it samples; nothing here does.
"""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array


def unroll_priorities(td_errors: Array, valid: Array, *, eta: float, floor: float) -> Array:
  """Returns eta max_t |delta_t| + (1 - eta) mean_t |delta_t| (R2D2, section 2.3), `[B]`.

  Args:
    td_errors: `[U, B]`, delta.
    valid: bool `[U, B]`; transitions that are false take part in neither max nor mean.
    eta: in [0, 1].
    floor: what is returned instead if it is more.
  """
  absolute = jnp.where(valid, jnp.abs(td_errors), 0.0)
  mean = jnp.sum(absolute, axis=0) / jnp.maximum(jnp.sum(valid, axis=0), 1)
  return jnp.maximum(eta * jnp.max(absolute, axis=0) + (1.0 - eta) * mean, floor)


def importance_weights(probabilities: Array, exponent: float) -> Array:
  """Returns (1 / (N P_i))^exponent over the largest in the batch (Schaul et al. 2016, section 3.4).

  The size N of the replay cancels. The largest is that of the whole batch, wherever it is sharded.

  Args:
    probabilities: float32 `[B]`, P, above 0.
    exponent: beta in [0, 1].

  Returns:
    float32 `[B]` in (0, 1].
  """
  return (jnp.min(probabilities) / probabilities) ** exponent
