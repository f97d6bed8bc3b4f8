"""The head of the R2D2 network."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp

from agents.networks.torsos import RELU_INIT
from agents.types import Array


class DuelingHead(nn.Module):
  """Q = V + A - mean of A (Wang et al. 2016, equation 9); V and A have a hidden layer each."""

  num_actions: int
  hidden_size: int

  @nn.compact
  def __call__(self, features: Array) -> Array:
    """Maps float32 `[..., D]` to Q-values `[..., num_actions]`, in the range of h."""

    def stream(name: str, size: int) -> Array:
      hidden = nn.Dense(self.hidden_size, kernel_init=RELU_INIT, name=f'{name}_hidden')(features)
      return nn.Dense(size, name=name)(nn.relu(hidden))

    advantage = stream('advantage', self.num_actions)
    return stream('value', 1) + advantage - jnp.mean(advantage, axis=-1, keepdims=True)
