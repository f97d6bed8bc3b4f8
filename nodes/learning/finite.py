"""A learner step that is not finite ends the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from nodes.runtime import lifecycle


def raise_not_finite(learner_step: int, metrics: Mapping[str, Any]) -> None:
  """Raises lifecycle.NonRetryableError, one sentence that names what of a step is not finite."""
  bad = {k: float(v) for k, v in jax.device_get(metrics).items() if not np.isfinite(v)}
  values = (
    ', '.join(f'{name} is {value}' for name, value in bad.items()) or 'its parameters are not'
  )
  raise lifecycle.NonRetryableError(
    f'learner step {learner_step} is not finite: {values}; the last checkpoint, if any, is of an '
    'earlier step. A smaller learning rate or a clipped gradient may help.'
  )
