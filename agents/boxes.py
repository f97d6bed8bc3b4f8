"""Boxes: the actions of continuous environments, and their points as fractions of the bounds."""

from __future__ import annotations

import dm_env.specs
import jax.numpy as jnp
import numpy as np

from agents.types import Array


class Box:
  """The box of an action spec, for which `agents.spaces.is_box` holds.

  A fraction is a point of the box with each of its A dimensions scaled to [-1, 1], float32 `[..., A]`.

  Attributes:
    num_dimensions: A.
  """

  def __init__(self, action_spec: dm_env.specs.BoundedArray):
    """Initialises a box."""
    self._shape = action_spec.shape
    self._low = np.broadcast_to(action_spec.minimum, self._shape).astype(np.float32)
    self._high = np.broadcast_to(action_spec.maximum, self._shape).astype(np.float32)
    low, high = 0.5 * self._low, 0.5 * self._high  # Halves first: a sum may overflow.
    self._middle, self._half = high + low, high - low
    self.num_dimensions = int(np.prod(self._shape, dtype=np.int64))

  def action(self, fraction: Array) -> Array:
    """Returns the actions of fractions, float32 `[..., *shape]`, clipped to the bounds."""
    fraction = fraction.reshape(*fraction.shape[:-1], *self._shape)
    return jnp.clip(self._middle + self._half * fraction, self._low, self._high)

  def fraction(self, action: Array) -> Array:
    """Returns the fractions of actions `[..., *shape]`; 0 in a dimension whose bounds are equal."""
    scaled = (action - self._middle) / np.where(self._half > 0.0, self._half, 1.0)
    return scaled.reshape(*action.shape[: action.ndim - len(self._shape)], self.num_dimensions)
