"""The common network for images, as a torso of Stoix, whose own pads its convolutions."""

from __future__ import annotations

import flax.linen as nn
import jax


class Nature(nn.Module):
  """The convolutions and the dense layer of our Nature torso."""

  hidden_size: int

  @nn.compact
  def __call__(self, images: jax.Array) -> jax.Array:
    """Maps uint8 `[..., C, H, W]` to `[..., hidden_size]`."""
    leading = images.shape[:-3]
    x = images.reshape(-1, *images.shape[-3:]).transpose(0, 2, 3, 1) / 255.0
    for size, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
      x = nn.relu(nn.Conv(size, (kernel, kernel), (stride, stride), padding='VALID')(x))
    return nn.relu(nn.Dense(self.hidden_size)(x.reshape(*leading, -1)))
