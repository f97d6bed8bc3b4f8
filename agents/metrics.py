"""Metrics that every agent reports."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents import masked
from agents.types import Array, Nest


def policy_lag(learner_steps: Array, policy_version: Array) -> dict[str, Array]:
  """Returns `policy_lag_mean` and `policy_lag_max`, float32 `[]`, in learner steps.

  Args:
    learner_steps: int32 `[]`, the updates done before this one.
    policy_version: int32 `[...]`, the updates that made the acting parameters of each row.
  """
  lag = (learner_steps - policy_version).astype(jnp.float32)
  return {'policy_lag_mean': jnp.mean(lag), 'policy_lag_max': jnp.max(lag)}


def mean_rho(rhos: Array, valid: Array) -> Array:
  """Returns the mean of the importance weights pi/mu where `valid`, float32 `[]`.

  Each counts as 1e6 at most, because exp overflows where pi/mu is above e^88. Losses clip them.
  """
  return masked.mean(jnp.minimum(rhos, 1e6), valid)


# An update is valid only if these metrics, where reported, are finite. Other metrics may overflow while
# the clipped quantities that enter the loss stay finite.
CHECKED_FOR_FINITENESS = ('loss', 'grad_norm')


def all_finite(params: Nest, metrics: dict[str, Array]) -> Array:
  """Returns whether parameters and loss are finite after an update, bool `[]`.

  Args:
    params: the parameters after the update.
    metrics: of the update, or of several with a leading axis; those in `CHECKED_FOR_FINITENESS` are
      checked.
  """
  checked = [jnp.asarray(metrics[name]) for name in CHECKED_FOR_FINITENESS if name in metrics]
  leaves = [x for x in jax.tree.leaves(params) if jnp.issubdtype(x.dtype, jnp.inexact)]
  return jnp.all(jnp.asarray([jnp.isfinite(x).all() for x in checked + leaves]))
