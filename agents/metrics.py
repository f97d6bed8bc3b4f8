"""Metrics that every agent reports."""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array


def policy_lag(learner_steps: Array, policy_version: Array) -> dict[str, Array]:
  """Returns `policy_lag_mean` and `policy_lag_max`, float32 `[]`, in learner steps.

  Args:
    learner_steps: int32 `[]`, the updates done before this one.
    policy_version: int32 `[...]`, those behind the parameters that acted, row by row.
  """
  lag = (learner_steps - policy_version).astype(jnp.float32)
  return {'policy_lag_mean': jnp.mean(lag), 'policy_lag_max': jnp.max(lag)}


def all_finite(metrics: dict[str, Array]) -> Array:
  """Returns whether every value is finite, bool `[]`; `metrics` are those of an update."""
  values = [jnp.asarray(metric, jnp.float32) for metric in metrics.values()]
  return jnp.isfinite(jnp.stack(values)).all()
