"""Environments whose episode is a lifetime of several inner episodes."""

from __future__ import annotations

import dm_env.specs
import numpy as np

from agents.types import Array


class LifetimeObservation(dm_env.specs.BoundedArray):
  """One observation of such an environment: float32 `[F + 1]` in [0, 1].

  The first F numbers are features of the state. The last one is 1 where the transition into the row
  ended an inner episode; the features are then those of the next one's first state. So no row is spent
  between inner episodes. FIRST and LAST mark the lifetime.
  """

  def __init__(self, num_features: int):
    """Initialises the spec for F features."""
    super().__init__((num_features + 1,), np.float32, 0.0, 1.0, 'observation')

  def __reduce__(self):  # type: ignore[no-untyped-def]
    return LifetimeObservation, (self.num_features,)

  @property
  def num_features(self) -> int:
    """F."""
    return int(self.shape[0]) - 1


def features(observation: Array) -> Array:
  """Returns the features of observations, `[..., F]`."""
  return observation[..., :-1]


def ended(observation: Array) -> Array:
  """Returns whether the transition into each row ended an inner episode, `[...]`, 0 or 1."""
  return observation[..., -1]
