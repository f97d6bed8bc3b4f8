"""The inner policy, and the networks over a lifetime."""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from agents.types import Array, Nest


class InnerPolicy:
  """Logits of discrete actions, of one environment. Its parameters are drawn for each lifetime."""

  def __init__(self, num_features: int, sizes: Sequence[int], num_actions: int, scale: float):
    """Initialises the shapes.

    Args:
      num_features: of an observation.
      sizes: units of the hidden layers.
      num_actions: number of logits.
      scale: standard deviation of the weights of the last layer.
    """
    self._sizes = num_features, *sizes, num_actions
    self._scale = scale

  def draw(self, key: Array) -> Nest:
    """Returns new parameters: a (weights, biases) pair for each hidden layer, and the last weights."""
    *hidden, last = zip(self._sizes[:-1], self._sizes[1:], strict=True)
    keys = jax.random.split(key, len(hidden) + 1)
    layers = [
      (jax.random.normal(key, shape) * np.float32(np.sqrt(2 / shape[0])), jnp.zeros(shape[1]))
      for key, shape in zip(keys, hidden, strict=False)
    ]
    return layers, self._scale * jax.random.normal(keys[-1], last)

  def logits(self, policy: Nest, features: Array) -> Array:
    """Returns the logits, float32 `[A]`, for features `[F]`."""
    layers, last = policy
    for weights, biases in layers:
      features = nn.relu(features @ weights + biases)
    return features @ last

  def log_probs(self, policy: Nest, features: Array) -> Array:
    """Returns the logarithms of the probabilities, float32 `[A]`."""
    return jax.nn.log_softmax(self.logits(policy, features))

  def score(self, policy: Nest, features: Array, action: Array) -> Nest:
    """Returns the gradient of an action's log probability with respect to the parameters."""
    return jax.grad(lambda policy: self.log_probs(policy, features)[action])(policy)


class LifetimeHead(nn.Module):
  """A scalar for each row, the reward or the value: by a GRU over the lifetime, or without `memory`."""

  size: int
  memory: bool = True
  bounded: bool = False

  @nn.compact
  def __call__(self, state: Array, inputs: Array) -> tuple[Array, Array]:
    """Maps the memory `[..., size]` and inputs `[..., n]` to the next memory and the number `[...]`."""
    if self.memory:
      state, x = nn.GRUCell(self.size)(state, inputs)
    else:
      x = nn.relu(nn.Dense(self.size)(inputs))
    number = nn.Dense(1)(x)[..., 0]
    return state, jnp.tanh(number) if self.bounded else number
