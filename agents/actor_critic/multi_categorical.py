"""The distribution of several discrete actions at once."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from agents.action_mask import ILLEGAL
from agents.actor_critic.distributions import Distribution
from agents.types import Array


class MultiCategorical(Distribution):
  """Independent categorical distributions, one for each of K discrete actions; a draw is int32 `[K]`.

  The parameters are the logits of the first action, then those of the second, and so on.
  """

  has_draws = False

  def __init__(self, num_values: Sequence[int]):
    """Initialises the distribution; `num_values` are those of each action."""
    self.num_logits = sum(num_values)
    # Places of the logits in `[K, largest]`, so that all actions are computed at once.
    label, sizes = np.arange(max(num_values)), np.array(num_values)[:, None]
    place = np.cumsum(sizes)[:, None] - sizes + label
    self._place = np.where(label < sizes, place, self.num_logits)  # A gap is one place further.

  def sample(self, key: Array, logits: Array) -> Array:
    """Returns actions, int32 `[K]`. See the base class."""
    return jax.random.categorical(key, self._each(logits)).astype(jnp.int32)

  def mode(self, logits: Array) -> Array:
    """Returns the most probable actions, int32 `[K]`."""
    return jnp.argmax(self._each(logits), axis=-1).astype(jnp.int32)

  def log_prob(self, logits: Array, draw: Array) -> Array:
    """Returns the log-probability of all K actions together. See the base class."""
    log_pi = jax.nn.log_softmax(self._each(logits))
    labels = draw[..., None].astype(jnp.int32)
    return jnp.sum(jnp.take_along_axis(log_pi, labels, axis=-1)[..., 0], axis=-1)

  def entropy(self, logits: Array) -> Array:
    """Returns the sum of the entropies. See the base class."""
    log_pi = jax.nn.log_softmax(self._each(logits))
    return -jnp.sum(jnp.exp(log_pi) * log_pi, axis=(-2, -1))

  def action(self, draw: Array) -> Array:
    """Returns the draw itself."""
    return draw

  def _each(self, logits: Array) -> Array:
    """Returns logits `[..., num_logits]` as `[..., K, largest]`, with `ILLEGAL` in the gaps."""
    padding = [(0, 0)] * (logits.ndim - 1) + [(0, 1)]
    return jnp.pad(logits, padding, constant_values=ILLEGAL)[..., self._place]
