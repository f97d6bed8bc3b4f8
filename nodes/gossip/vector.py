"""Parameters as one vector, which peers send to each other."""

from __future__ import annotations

import jax
import numpy as np

from agents.types import Nest


def flatten(params: Nest) -> np.ndarray:
  """Returns all leaves, one after the other, as float32 `[D]` on the host."""
  leaves = jax.device_get(jax.tree.leaves(params))
  return np.concatenate([np.ravel(leaf).astype(np.float32) for leaf in leaves])


def unflatten(vector: np.ndarray, template: Nest) -> Nest:
  """Returns parameters with the values of a vector.

  Args:
    vector: of `flatten`, float `[D]`.
    template: parameters on devices; the result has their structure, shapes, dtypes and sharding.
  """
  leaves, structure = jax.tree.flatten(template)
  parts = np.split(vector, np.cumsum([leaf.size for leaf in leaves])[:-1])
  placed = [
    jax.device_put(part.reshape(leaf.shape).astype(leaf.dtype), leaf.sharding)
    for part, leaf in zip(parts, leaves, strict=True)
  ]
  return jax.tree.unflatten(structure, placed)
