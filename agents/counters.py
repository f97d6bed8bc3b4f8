"""Counters of a run, int32 on the devices, where JAX has no wider integers by default."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from agents.types import Array

_LARGEST = np.int32(2**31 - 1)


def saturated(count: Array) -> Array:
  """Returns a counter int32 `[]` that stays at its largest value where it has wrapped at 2^31.

  Differences of counters are right across the wrap, as in `agents.metrics.policy_lag`. What depends on
  the counter itself, such as a schedule, needs this.
  """
  return jnp.where(count < 0, _LARGEST, count)
