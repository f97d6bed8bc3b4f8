"""The orders of rows: a batch of unrolls is `[B, T, ...]`; networks and targets take `[T, B, ...]`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.types import Nest


def swapped(rows: Nest) -> Nest:
  """Swaps the first two axes of every field."""
  return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
