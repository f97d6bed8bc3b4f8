"""Returns that bootstrap after n transitions."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array


def n_step_returns(
  values: Array, rewards: Array, discounts: Array, valid: Array, n_step: int
) -> Array:
  """Computes n-step returns over `U` transitions, `U+1` rows.

  In the indices of rows, with x^0_t = V(x_t),

      x^k_t = r_{t+1} + gamma_{t+1} x^{k-1}_{t+1},

  n times; but x^k_t = V(x_t) where row t is LAST or the final row. The horizon is therefore shorter than
  n where the rows or the episode end. A truncated episode bootstraps from the value of its LAST row. A
  terminated one does not bootstrap, since gamma is 0 there. No return crosses from a LAST row to the
  FIRST after it.

  Args:
    values: `[U+1, B]`, V(x_0) .. V(x_U).
    rewards: `[U, B]`; index t is r_{t+1}, which arrived with row t+1.
    discounts: `[U, B]`; index t is gamma_{t+1}, gamma times the discount that arrived with row t+1.
    valid: bool `[U, B]`; false where row t is LAST, so that t -> t+1 is not a transition.
    n_step: at least 1.

  Returns:
    `[U, B]`, x^n_0 .. x^n_{U-1}; V(x_t) for an invalid transition.
  """
  returns = values
  for _ in range(n_step):
    longer = jnp.where(valid, rewards + discounts * returns[1:], values[:-1])
    returns = jnp.concatenate([longer, values[-1:]])
  return returns[:-1]
