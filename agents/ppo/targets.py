"""Generalized advantage estimates (Schulman et al. 2016), of fresh or of stale data."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.types import Array
from agents.vtrace.targets import Targets, vtrace


def generalized_advantages(
  values: Array,
  rewards: Array,
  discounts: Array,
  rhos: Array,
  valid: Array,
  *,
  lambda_: float,
  rho_bar: float = 1.0,
  c_bar: float = 1.0,
) -> Targets:
  """Computes advantages and targets of values over `T` transitions, `T+1` rows.

  The targets v_s are those of V-trace with lambda; see `agents.vtrace.targets`. With
  delta_s = r_{s+1} + gamma_{s+1} V(x_{s+1}) - V(x_s) the advantages are

      A_s = delta_s + gamma_{s+1} lambda (v_{s+1} - V(x_{s+1})).

  With every ratio 1 this is generalized advantage estimation: A_s = sum_k (gamma lambda)^k delta_{s+k},
  equation (16) of the paper, and v_s = V(x_s) + A_s. With the ratios of stale data, later differences
  are weighted by clipped ratios. The ratio of row s itself does not enter A_s, because the clipped ratio
  of PPO's loss weighs it.

  A terminated episode has gamma_{s+1} = 0 in its last transition. A truncated one bootstraps from the
  value of its LAST row. Nothing flows through an invalid transition.

  Args:
    values: `[T+1, B]`, V(x_0) .. V(x_T) of the current policy; the last only bootstraps.
    rewards: `[T, B]`; index t is r_{t+1}, which arrived with row t+1.
    discounts: `[T, B]`; index t is gamma_{t+1}, gamma times the discount that arrived with row t+1.
    rhos: `[T, B]`, pi(a_t | x_t) / mu(a_t | x_t), unclipped; ones for data taken as fresh.
    valid: bool `[T, B]`; false where row t is LAST, so that t -> t+1 is not a transition.
    lambda_: in [0, 1].
    rho_bar: clip of the ratio of each difference.
    c_bar: clip of the ratios that trace later differences back, before lambda.

  Returns:
    Targets and advantages in the dtype of the inputs, without gradients.
  """
  value, next_value = values[:-1], values[1:]
  targets = vtrace(
    values, rewards, discounts, rhos, valid, rho_bar=rho_bar, c_bar=c_bar, lambda_=lambda_
  ).values
  next_target = jnp.concatenate([targets[1:], values[-1:]])
  delta = rewards + discounts * next_value - value
  advantages = jnp.where(valid, delta + discounts * lambda_ * (next_target - next_value), 0)
  return jax.lax.stop_gradient(Targets(targets, advantages))
