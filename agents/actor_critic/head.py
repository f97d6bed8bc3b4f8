"""The head of actor-critic networks."""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn

from agents.types import Array


class PolicyValue(NamedTuple):
  """The network's outputs for rows `[...]`."""

  logits: Array  # float32 `[..., num_logits]`, the parameters of the policy pi.
  value: Array  # float32 `[...]`, the baseline V.


class PolicyValueHead(nn.Module):
  """One linear layer for the logits, initially near zero, and one for V.

  Zero logits are a uniform policy, or one centred in the bounds of continuous actions.
  """

  num_logits: int

  @nn.compact
  def __call__(self, features: Array) -> PolicyValue:
    """Maps float32 `[..., D]` to logits `[..., num_logits]` and values `[...]`."""
    small = nn.initializers.orthogonal(0.01)
    logits = nn.Dense(self.num_logits, kernel_init=small, name='logits')(features)
    value = nn.Dense(1, name='value')(features)
    return PolicyValue(logits, value[..., 0])
