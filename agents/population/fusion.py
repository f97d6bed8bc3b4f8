"""Fusion of the pods of an agent (FinRL-Podracer, Li et al. 2021): the mean of their learner states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from agents.types import Nest


def fused(states: Sequence[Nest]) -> Nest:
  """Returns the mean of learner states: of parameters, optimizer states, and whatever else is real.

  Args:
    states: of the same structure, NumPy arrays as leaves. Of one alone the result is that state.

  Returns:
    Arrays of the same dtypes. Counters and other integers are those of the first state.
  """
  return states[0] if len(states) == 1 else jax.tree.map(_mean, *states)


def _mean(*leaves: Any) -> Any:
  first = leaves[0]
  if not np.issubdtype(first.dtype, np.inexact):
    return first
  return np.mean([np.asarray(leaf, np.float64) for leaf in leaves], axis=0).astype(first.dtype)
