"""The dueling head of R2D2, and its epsilon-greedy exploration."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

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


def epsilons(num_environments: int, base: float, alpha: float) -> np.ndarray:
  """Returns base^(1 + alpha i / (N - 1)) for i = 0 .. N-1 (Horgan et al. 2018, section 4.1).

  float64 `[num_environments]`; `[base]` if there is one.
  """
  return base ** np.linspace(1.0, 1.0 + alpha, num_environments)


def epsilon_greedy(
  key: Array, q_values: Array, epsilon: Array, legal: Array | None = None
) -> Array:
  """Returns one action, int32 `[]`: uniformly random with probability `epsilon`, else argmax Q.

  Args:
    key: a typed PRNG key, `[]`.
    q_values: `[A]`, those of illegal actions the smallest.
    epsilon: `[]`; 0 is never random, 1 always.
    legal: bool `[A]`, which actions to choose from, at least one; None for all.
  """
  whether_key, action_key = jax.random.split(key)
  count = q_values.shape[-1] if legal is None else jnp.sum(legal, dtype=jnp.int32)
  anything = jax.random.randint(action_key, (), 0, count, jnp.int32)
  if legal is not None:
    before = anything  # The number of legal actions before the one that is chosen.
    anything = jnp.argmax(jnp.cumsum(legal) > before).astype(jnp.int32)
  greedy = jnp.argmax(q_values).astype(jnp.int32)
  return jnp.where(jax.random.uniform(whether_key) < epsilon, anything, greedy)
