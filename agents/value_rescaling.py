"""The rescaling h of values, which R2D2 and MuZero use (Pohlen et al. 2018, section 3.2)."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array


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
