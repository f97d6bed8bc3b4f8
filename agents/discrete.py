"""Discrete actions: one, or several at once."""

from __future__ import annotations

import dm_env.specs
import numpy as np


def num_values(action_spec: dm_env.specs.Array) -> tuple[int, ...] | None:
  """Returns the number of values of each discrete action; None if actions are not discrete.

  A DiscreteArray is one. A BoundedArray of integers `[K]` from 0 is K at once, as Gymnasium's
  MultiDiscrete.
  """
  if isinstance(action_spec, dm_env.specs.DiscreteArray):
    return (int(action_spec.num_values),)
  if (
    isinstance(action_spec, dm_env.specs.BoundedArray)
    and np.issubdtype(action_spec.dtype, np.integer)
    and len(action_spec.shape) == 1
    and not np.any(action_spec.minimum)
  ):
    return tuple((np.broadcast_to(action_spec.maximum, action_spec.shape) + 1).tolist())
  return None
