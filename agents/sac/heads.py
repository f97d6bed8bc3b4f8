"""The heads of SAC: policy and critics, of features of the torso."""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from agents.networks.torsos import ACTIVATIONS, hidden_init, output_init
from agents.types import Array


class PolicyHead(nn.Module):
  """Hidden layers, then the parameters of the policy, initially near zero."""

  sizes: Sequence[int]
  num_logits: int
  init_of: str = 'fan_in'
  activation: str = 'relu'

  @nn.compact
  def __call__(self, features: Array) -> Array:
    """Maps float32 `[..., F]` to logits `[..., num_logits]`."""
    x = _hidden(features, self.sizes, self.init_of, self.activation)
    small = nn.initializers.orthogonal(0.01)
    return nn.Dense(self.num_logits, kernel_init=small, name='logits')(x)


class Critics(nn.Module):
  """Two critics, each with weights of its own."""

  sizes: Sequence[int]
  init_of: str = 'fan_in'
  activation: str = 'relu'

  @nn.compact
  def __call__(self, features: Array, action: Array) -> Array:
    """Maps float32 `[..., F]` and actions `[..., A]`, in [-1, 1], to both values of Q, `[..., 2]`."""
    x, values = jnp.concatenate([features, action], axis=-1), []
    for _ in range(2):
      y = _hidden(x, self.sizes, self.init_of, self.activation)
      values.append(nn.Dense(1, kernel_init=output_init(self.init_of))(y))
    return jnp.concatenate(values, axis=-1)


def _hidden(x: Array, sizes: Sequence[int], init_of: str, activation: str) -> Array:
  for size in sizes:
    x = nn.Dense(size, kernel_init=hidden_init(init_of, activation))(x)
    x = ACTIVATIONS[activation](x)
  return x
