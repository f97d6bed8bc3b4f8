"""Ends a run whose learner step is not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import jax
import numpy as np

from agents.metrics import CHECKED_FOR_FINITENESS
from nodes.runtime import lifecycle


def raise_not_finite(learner_step: int, metrics: Mapping[str, Any]) -> NoReturn:
  """Raises lifecycle.NonRetryableError, one sentence that names a step's non-finite metrics.

  Args:
    learner_step: the number of the step.
    metrics: of the step; scalars.
  """
  bad = {k: float(v) for k, v in jax.device_get(metrics).items() if not np.isfinite(v)}
  values = (
    ', '.join(f'{name} is {value}' for name, value in bad.items()) or 'its parameters are not'
  )
  raise lifecycle.NonRetryableError(
    f'learner step {learner_step} is not finite: {values}; the last checkpoint, if any, is of an '
    'earlier step. A smaller learning rate or a clipped gradient may help.'
  )


def raise_first_not_finite(
  learner_steps: int, num_updates: int, metrics: Mapping[str, np.ndarray]
) -> NoReturn:
  """Raises lifecycle.NonRetryableError for the first non-finite step of several.

  If loss and gradient of all steps are finite, the parameters are not, and the last step is named.

  Args:
    learner_steps: the number of steps before them.
    num_updates: the number U of steps.
    metrics: of each step, `[U]` each.
  """
  checked = [m for name, m in metrics.items() if name in CHECKED_FOR_FINITENESS]
  bad = ~np.isfinite(np.asarray(checked)).reshape(-1, num_updates).all(axis=0)
  first = int(np.argmax(bad)) if bad.any() else num_updates - 1
  raise_not_finite(learner_steps + first + 1, {name: m[first] for name, m in metrics.items()})
