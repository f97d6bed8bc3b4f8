"""Epsilon-greedy exploration."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from agents.types import Array


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
