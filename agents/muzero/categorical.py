"""Values and rewards as categories: two-hot targets over bins in the range of h.

MuZero's appendix F, "Network architecture": a scalar x becomes h(x), which lies between two bins and is
split over both in proportion to its nearness. With bins at the integers, 3.7 is 0.3 on 3 and 0.7 on 4.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.muzero.config import MuZeroConfig
from agents.types import Array
from agents.value_rescaling import h, h_inverse


def two_hot(config: MuZeroConfig, x: Array) -> Array:
  """Returns the categories of scalars, float32 `[..., num_bins]` for `[...]`; each sums to 1.

  A scalar beyond the last bin, or before the first, is wholly on that bin.
  """
  last = config.num_bins - 1
  unit = 2.0 * config.max_bin / last
  scaled = h(jnp.asarray(x, jnp.float32), config.rescale_epsilon) / unit + last / 2
  place = jnp.clip(scaled, 0.0, last)
  low = jnp.clip(jnp.floor(place), 0, last - 1)
  upper = (place - low)[..., None]
  low = low.astype(jnp.int32)
  lower_hot = jax.nn.one_hot(low, config.num_bins)
  upper_hot = jax.nn.one_hot(low + 1, config.num_bins)
  return (1.0 - upper) * lower_hot + upper * upper_hot


def expectation(config: MuZeroConfig, logits: Array) -> Array:
  """Returns h^-1 of the mean bin, float32 `[...]`, for logits `[..., num_bins]`."""
  bins = jnp.linspace(-config.max_bin, config.max_bin, config.num_bins)
  # Sums of symmetric bins in pairs, so that a uniform distribution is exactly 0.
  probabilities = jax.nn.softmax(logits)
  half = config.num_bins // 2
  difference = probabilities[..., half + 1 :] - probabilities[..., :half][..., ::-1]
  # Accelerators multiply matrices with fewer bits, unless they are told not to.
  mean = jnp.matmul(difference, bins[half + 1 :], precision='highest')
  return h_inverse(mean, config.rescale_epsilon)
