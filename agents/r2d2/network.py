"""The dueling head of R2D2."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp

from agents import action_mask
from agents.networks.torsos import hidden_init, output_init
from agents.types import Array


class DuelingHead(nn.Module):
  """Q = V + A - mean of A (Wang et al. 2016, equation 9); V and A have one hidden layer each."""

  num_actions: int
  hidden_size: int
  init_of: str = 'fan_in'

  @nn.compact
  def __call__(self, features: Array) -> Array:
    """Maps float32 `[..., D]` to Q-values `[..., num_actions]`, in the range of h."""

    def stream(name: str, size: int) -> Array:
      hidden = nn.Dense(
        self.hidden_size, kernel_init=hidden_init(self.init_of), name=f'{name}_hidden'
      )(features)
      return nn.Dense(size, kernel_init=output_init(self.init_of), name=name)(nn.relu(hidden))

    advantage = stream('advantage', self.num_actions)
    return stream('value', 1) + advantage - jnp.mean(advantage, axis=-1, keepdims=True)

  masked = staticmethod(action_mask.masked)
