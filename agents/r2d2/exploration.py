"""How R2D2 explores: each environment with an epsilon of its own, always the same."""

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


def epsilon_greedy(key: Array, q_values: Array, epsilon: Array) -> Array:
  """Returns one action, int32 `[]`: any with probability `epsilon`, else the one with the largest Q.

  Args:
    key: a typed PRNG key, `[]`.
    q_values: `[A]`.
    epsilon: `[]`; 0 is never random, 1 always.
  """
  whether_key, action_key = jax.random.split(key)
  anything = jax.random.randint(action_key, (), 0, q_values.shape[-1], jnp.int32)
  greedy = jnp.argmax(q_values).astype(jnp.int32)
  return jnp.where(jax.random.uniform(whether_key) < epsilon, anything, greedy)
