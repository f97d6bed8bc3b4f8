"""V-trace targets (Espeholt et al. 2018, section 4.1)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from agents.types import Array


class Targets(NamedTuple):
  """Targets and advantages, without gradients; index s is row s, s = 0 .. T-1."""

  values: Array  # `[T, B]`, targets of the baseline.
  advantages: Array  # `[T, B]`, of the actions taken; 0 where invalid.


def vtrace(
  values: Array,
  rewards: Array,
  discounts: Array,
  rhos: Array,
  valid: Array,
  *,
  rho_bar: float = 1.0,
  c_bar: float = 1.0,
  lambda_: float = 1.0,
) -> Targets:
  """Computes V-trace targets and policy-gradient advantages over `T` transitions, `T+1` rows.

  With rho_t = min(rho_bar, pi/mu), c_t = lambda min(c_bar, pi/mu) and
  delta_t = rho_t (r_{t+1} + gamma_{t+1} V(x_{t+1}) - V(x_t)), equation (1) with lambda as in
  remark 2, in the indices of rows, is

      v_s = V(x_s) + sum_{t=s}^{T-1} (prod_{i=s}^{t-1} gamma_{i+1} c_i) delta_t

  computed backwards from v_T = V(x_T) by
  v_s - V(x_s) = delta_s + gamma_{s+1} c_s (v_{s+1} - V(x_{s+1})). An invalid transition has
  delta_t = 0, c_t = 0 and no advantage. So v_s = V(x_s) in a LAST row, and no correction flows back from
  the next episode. The other arguments are ignored there.

  Args:
    values: `[T+1, B]`, V(x_0) .. V(x_T); the last only bootstraps.
    rewards: `[T, B]`; index t is r_{t+1}, which arrived with row t+1.
    discounts: `[T, B]`; index t is gamma_{t+1}, gamma times the discount that arrived with row t+1.
    rhos: `[T, B]`, pi(a_t | x_t) / mu(a_t | x_t), unclipped.
    valid: bool `[T, B]`; false where row t is LAST, so that t -> t+1 is not a transition.
    rho_bar: clip of rho, here and in the advantages.
    c_bar: clip of c, before lambda.
    lambda_: in [0, 1].

  Returns:
    Targets v_s, and advantages min(rho_bar, rhos_s) (r_{s+1} + gamma_{s+1} v_{s+1} - V(x_s)), in the
    dtype of the inputs, without gradients.
  """
  value, next_value = values[:-1], values[1:]
  clipped_rho = jnp.minimum(rho_bar, rhos)
  delta = jnp.where(valid, clipped_rho * (rewards + discounts * next_value - value), 0)
  carry = jnp.where(valid, discounts * lambda_ * jnp.minimum(c_bar, rhos), 0)

  def step(correction: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
    delta_t, carry_t = row
    correction = delta_t + carry_t * correction
    return correction, correction

  _, corrections = jax.lax.scan(step, jnp.zeros_like(delta[0]), (delta, carry), reverse=True)
  targets = value + corrections
  next_target = jnp.concatenate([targets[1:], values[-1:]])
  advantages = jnp.where(valid, clipped_rho * (rewards + discounts * next_target - value), 0)
  return jax.lax.stop_gradient(Targets(targets, advantages))
