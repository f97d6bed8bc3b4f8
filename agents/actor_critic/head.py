"""The head of actor-critic networks."""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from agents import action_mask
from agents.networks.torsos import output_init
from agents.types import Array


class PolicyValue(NamedTuple):
  """The network's outputs for rows `[...]`."""

  logits: Array  # float32 `[..., num_logits]`, the parameters of the policy pi.
  value: Array  # float32 `[...]`, the baseline V.


class PolicyValueHead(nn.Module):
  """One linear layer for the logits, initially near zero, and one for V.

  Zero logits are a uniform policy, or one centred in the bounds of continuous actions.

  Attributes:
    num_logits: number of logits of a row.
    num_free: number of logits, the last ones, that are parameters and the same in every row.
    twins: whether the second half of the features is for V and the first for the logits.
    init_of: the option `init` of the network.
  """

  num_logits: int
  num_free: int = 0
  twins: bool = False
  init_of: str = 'fan_in'

  @nn.compact
  def __call__(self, features: Array) -> PolicyValue:
    """Maps float32 `[..., D]` to logits `[..., num_logits]` and values `[...]`."""
    for_policy, for_value = jnp.split(features, 2, -1) if self.twins else (features, features)
    small = nn.initializers.orthogonal(0.01)
    logits = nn.Dense(self.num_logits - self.num_free, kernel_init=small, name='logits')(for_policy)
    if self.num_free:
      free = self.param('free_logits', nn.initializers.zeros, (self.num_free,), jnp.float32)
      free = jnp.broadcast_to(free, (*logits.shape[:-1], self.num_free))
      logits = jnp.concatenate([logits, free], axis=-1)
    value = nn.Dense(1, kernel_init=output_init(self.init_of), name='value')(for_value)
    return PolicyValue(logits, value[..., 0])

  @staticmethod
  def masked(output: PolicyValue, legal: Array) -> PolicyValue:
    """Returns outputs whose illegal actions have probability 0; `legal` is bool `[..., num_logits]`."""
    return output._replace(logits=action_mask.masked(output.logits, legal))
