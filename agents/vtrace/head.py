"""The head of the V-trace network."""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn

from agents.types import Array


class PolicyValue(NamedTuple):
  """What the network says about rows `[...]`."""

  logits: Array  # float32 `[..., num_logits]`, the parameters of the policy pi.
  value: Array  # float32 `[...]`, the baseline V.


class PolicyValueHead(nn.Module):
  """A linear layer for the logits, nearly zero at first; another one for V.

  Zero logits are a uniform policy, or one around the middle of continuous actions.
  """

  num_logits: int

  @nn.compact
  def __call__(self, features: Array) -> PolicyValue:
    """Maps float32 `[..., D]` to logits `[..., num_logits]` and values `[...]`."""
    small = nn.initializers.orthogonal(0.01)
    logits = nn.Dense(self.num_logits, kernel_init=small, name='logits')(features)
    value = nn.Dense(1, name='value')(features)
    return PolicyValue(logits, value[..., 0])
