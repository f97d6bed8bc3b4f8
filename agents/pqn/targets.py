"""The returns of PQN: Peng's Q(lambda), from rows as they were stored."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.types import Array


def lambda_returns(
  values: Array, rewards: Array, discounts: Array, valid: Array, lambda_: float
) -> Array:
  """Computes lambda-returns over `T` transitions, `T+1` rows as PQN has them (Gallici et al. 2025).

  In the indices of rows, with V(x) = max_a Q(x, a),

      R_t = r_{t+1} + gamma_{t+1} (lambda R_{t+1} + (1 - lambda) V(x_{t+1})),

  and R_t = V(x_t) where row t is LAST or the final row. A truncated episode therefore bootstraps from
  the value of its LAST row. A terminated one does not bootstrap, since gamma is 0 there. No return
  crosses from a LAST row to the FIRST after it.

  Args:
    values: `[T+1, B]`, V(x_0) .. V(x_T).
    rewards: `[T, B]`; index t is r_{t+1}, which arrived with row t+1.
    discounts: `[T, B]`; index t is gamma_{t+1}, gamma times the discount that arrived with row t+1.
    valid: bool `[T, B]`; false where row t is LAST, so that t -> t+1 is not a transition.
    lambda_: in [0, 1].

  Returns:
    `[T, B]`, R_0 .. R_{T-1}, without gradients; V(x_t) for an invalid transition.
  """

  def step(later: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
    value, next_value, reward, discount, valid = row
    bootstrap = lambda_ * later + (1.0 - lambda_) * next_value
    found = jnp.where(valid, reward + discount * bootstrap, value)
    return found, found

  rows = values[:-1], values[1:], rewards, discounts, valid
  _, returns = jax.lax.scan(step, values[-1], rows, reverse=True)
  return jax.lax.stop_gradient(returns)
