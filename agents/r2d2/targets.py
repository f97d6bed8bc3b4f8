"""Targets of R2D2: rescaled n-step double Q-learning (R2D2, section 2.3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.q_learning.values import select
from agents.returns import n_step_returns
from agents.types import Array
from agents.value_rescaling import h, h_inverse


def double_q_targets(
  q_online: Array,
  q_target: Array,
  rewards: Array,
  discounts: Array,
  valid: Array,
  *,
  n_step: int,
  rescale_epsilon: float,
) -> Array:
  """Computes h of the n-step returns that bootstrap from the target network.

  The value of a row is h^-1 of the target network's Q of the online network's greedy action (van Hasselt
  et al. 2016).

  Args:
    q_online: `[U+1, B, A]`; selects the actions.
    q_target: `[U+1, B, A]`; evaluates them.
    rewards: as in `n_step_returns`.
    discounts: as in `n_step_returns`.
    valid: as in `n_step_returns`.
    n_step: as in `n_step_returns`.
    rescale_epsilon: the epsilon of h.

  Returns:
    `[U, B]` in the range of h, without gradients.
  """
  values = h_inverse(select(q_target, jnp.argmax(q_online, axis=-1)), rescale_epsilon)
  returns = n_step_returns(values, rewards, discounts, valid, n_step)
  return jax.lax.stop_gradient(h(returns, rescale_epsilon))
