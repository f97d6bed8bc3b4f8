"""Targets of R2D2: rescaled n-step double Q-learning (R2D2, section 2.3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.types import Array


def select(q: Array, action: Array) -> Array:
  """Returns Q of the actions, `[...]`, for Q-values `[..., A]` and integer actions `[...]`."""
  return jnp.take_along_axis(q, action[..., None].astype(jnp.int32), axis=-1)[..., 0]


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


def h(x: Array, epsilon: float) -> Array:
  """Returns sign(x) (sqrt(|x| + 1) - 1) + epsilon x, elementwise, in the dtype of `x`."""
  # sqrt(|x| + 1) - 1 = |x| / (sqrt(|x| + 1) + 1), which avoids cancellation.
  return x / (jnp.sqrt(jnp.abs(x) + 1.0) + 1.0) + epsilon * x


def h_inverse(y: Array, epsilon: float) -> Array:
  """Returns the x with h(x, epsilon) = y, elementwise, in the dtype of `y`; epsilon may be 0.

  The solution of the quadratic equation,
  sign(y) (((sqrt(1 + 4 epsilon (|y| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1), loses most digits
  of a float32 in its two differences. With s for that root and
  w = 2 y / (s + 1 + 2 epsilon), which is sign(y) (sqrt(|x| + 1) - 1), it equals w (|w| + 2).
  """
  root = jnp.sqrt(1.0 + 4.0 * epsilon * (jnp.abs(y) + 1.0 + epsilon))
  w = 2.0 * y / (root + 1.0 + 2.0 * epsilon)
  return w * (jnp.abs(w) + 2.0)
