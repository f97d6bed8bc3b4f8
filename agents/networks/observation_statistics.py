"""Statistics of observations: of an array, or of the leaves of a nest that are floats.

Those of a nest are a dictionary from the names of its leaves, as `agents.nests.named` gives them, to
their `agents.networks.statistics`. Leaves of other dtypes, such as images and flags, are not normalised.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agents import nests
from agents.networks import statistics
from agents.types import Nest


def initial(observation_spec: Nest) -> Nest:
  """Returns the statistics of no observations."""
  if not nests.is_nest(observation_spec):
    return statistics.initial(observation_spec.shape)
  return {name: statistics.initial(spec.shape) for name, spec in _floats(observation_spec).items()}


def merged(found: Nest, observation: Nest) -> Nest:
  """Returns the statistics with those of a batch, `[..., *S]` per leaf; see `statistics.merged`."""
  if not nests.is_nest(observation):
    return statistics.merged(found, observation)
  leaves = nests.named(observation)
  return {name: statistics.merged(found[name], leaves[name]) for name in found}


def pooled(found: Nest) -> Nest:
  """Returns the statistics of all observations of which there are several, `[K, ...]` per leaf."""
  if isinstance(next(iter(found.values())), dict):
    return {name: statistics.pooled(leaf) for name, leaf in found.items()}
  return statistics.pooled(found)


def or_first(before: Nest, after: Nest) -> Nest:
  """Returns the statistics `before` a batch, or those `after` it if there were none before."""
  if isinstance(next(iter(before.values())), dict):
    return {name: or_first(before[name], after[name]) for name in before}
  return jax.tree.map(lambda old, new: jnp.where(before['count'] > 0.0, old, new), before, after)


def normalized(found: Nest, observation: Nest) -> Nest:
  """Returns observations `[T, B, ...]`, normalised where there are statistics of them."""
  if not nests.is_nest(observation):
    return statistics.normalized(found, observation)
  leaves = [
    statistics.normalized(found[name], leaf) if name in found else leaf
    for name, leaf in nests.named(observation).items()
  ]
  return jax.tree.unflatten(jax.tree.structure(observation), leaves)


def _floats(observation_spec: Nest) -> dict[str, Any]:
  named = nests.named(observation_spec)
  return {name: spec for name, spec in named.items() if np.issubdtype(spec.dtype, np.floating)}
