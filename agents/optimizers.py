"""Parts of optimizers that agents share."""

from __future__ import annotations

import optax


def clip_gradients(
  optimizer: optax.GradientTransformation, max_norm: float
) -> optax.GradientTransformation:
  """Returns an optimizer whose gradients are scaled down to a global norm; 0 for no clipping."""
  if max_norm > 0.0:
    return optax.chain(optax.clip_by_global_norm(max_norm), optimizer)
  return optimizer
