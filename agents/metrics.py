"""Metrics that every agent reports."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.types import Array, Nest


def policy_lag(learner_steps: Array, policy_version: Array) -> dict[str, Array]:
  """Returns `policy_lag_mean` and `policy_lag_max`, float32 `[]`, in learner steps.

  Args:
    learner_steps: int32 `[]`, the updates done before this one.
    policy_version: int32 `[...]`, those behind the parameters that acted, row by row.
  """
  lag = (learner_steps - policy_version).astype(jnp.float32)
  return {'policy_lag_mean': jnp.mean(lag), 'policy_lag_max': jnp.max(lag)}


# Where an update reports these, they decide whether it is any good; every other metric only
# describes it, and may overflow where what is learned from is clipped and finite.
DECISIVE = ('loss', 'grad_norm')


def all_finite(params: Nest, metrics: dict[str, Array]) -> Array:
  """Returns whether an update has left something to go on from, bool `[]`.

  Args:
    params: after it.
    metrics: of it, or of several with a leading axis; only those of `DECISIVE` are looked at.
  """
  decisive = [jnp.asarray(metrics[name]) for name in DECISIVE if name in metrics]
  leaves = [x for x in jax.tree.leaves(params) if jnp.issubdtype(x.dtype, jnp.inexact)]
  return jnp.all(jnp.asarray([jnp.isfinite(x).all() for x in decisive + leaves]))
