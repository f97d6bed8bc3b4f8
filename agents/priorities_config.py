"""The options that agents with prioritized replay share. Imports no JAX: launching reads only this."""

from __future__ import annotations

import dataclasses

from agents.options import CheckedOptions, option


@dataclasses.dataclass(frozen=True)
class PrioritiesConfig(CheckedOptions):
  """Options of value rescaling, importance weights and priorities, as R2D2 has them."""

  rescale_epsilon: float = option(
    1e-3,
    'Weight of the linear part of the value rescaling h; R2D2: 1e-3.',
    at_least=0,
  )
  importance_exponent: float = option(
    0.6,
    'Exponent in [0, 1] of the importance weights; 0 for none, 1 for full correction.',
    at_least=0,
    at_most=1,
  )
  priority_eta: float = option(
    0.9,
    'Weight in [0, 1] of the largest error of an unroll in its priority, against their mean.',
    at_least=0,
    at_most=1,
  )
  priority_floor: float = option(
    1e-3,
    'Smallest priority, so that every unroll can be sampled, in the units of the errors: those of R2D2 '
    'are in the range of h, those of MuZero in units of return.',
    above=0,
  )
