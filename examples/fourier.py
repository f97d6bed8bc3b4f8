"""A torso: sines and cosines of learned projections of an observation, then one layer."""

import flax.linen as nn
import jax.numpy as jnp

from agents.networks.torsos import to_float


class Fourier(nn.Module):
  size: int = 64

  @nn.compact
  def __call__(self, observation):  # `[N, ...]` of any dtype in, float32 `[N, D]` out.
    x = to_float(observation).reshape(observation.shape[0], -1)
    waves = nn.Dense(self.size)(x)
    waves = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], axis=-1)
    return nn.relu(nn.Dense(self.size)(waves))


def wide():  # Or a function that makes one.
  return Fourier(size=256)
