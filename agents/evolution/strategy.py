"""Evolution strategies (Salimans et al. 2017): noise from seeds, centred ranks, the search gradient.

A *pair* has one seed and two policies: the parameters plus its noise, and minus its noise. A seed is the
data of a PRNG key, uint32 `[K]`. Whoever has it makes the same noise, so noise is never sent.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agents.types import Array


def seeds(key: Array, generation: Array | int, num_pairs: int) -> Array:
  """Returns the seeds of a generation, uint32 `[P, K]`, which no other generation has.

  Args:
    key: a typed PRNG key, that of the run.
    generation: its number, from 0.
    num_pairs: P.
  """
  return jax.random.key_data(jax.random.split(jax.random.fold_in(key, generation), num_pairs))


def noise(seed: Array, size: int) -> Array:
  """Returns the noise of a pair: standard normal, float32 `[size]`."""
  return jax.random.normal(_keys(seed)[0], (size,), jnp.float32)


def episode_key(seed: Array) -> Array:
  """Returns the key of everything random in the episodes of a pair, which both policies share."""
  return _keys(seed)[1]


def perturbed(vector: Array, seed: Array, sigma: float) -> Array:
  """Returns the parameters of the two policies of a pair, float32 `[2, D]`, from `vector`, `[D]`."""
  step = sigma * noise(seed, vector.shape[0])
  return jnp.stack([vector + step, vector - step])


def centred_ranks(returns: Array) -> Array:
  """Returns the ranks of `returns`, of any shape, scaled to [-1/2, 1/2]; equal returns share one.

  They are the same after any increasing change of the returns, so an outlier has no weight of its own.
  """
  flat = returns.reshape(-1)
  ordered = jnp.sort(flat)
  first, end = (jnp.searchsorted(ordered, flat, side=side) for side in ('left', 'right'))
  ranks = 0.5 * (first + end - 1)
  return (ranks / (flat.shape[0] - 1) - 0.5).reshape(returns.shape)


def search_gradient(shaped: Array, seeds: Array, size: int) -> Array:
  """Returns the mean of the noise over the policies, weighted by what they have earned, `[size]`.

  Divided by sigma, it estimates the gradient of the expectation of `shaped` over the noise.

  Args:
    shaped: float32 `[P, 2]`, returns or their ranks, of the policies with plus and with minus the noise.
    seeds: uint32 `[P, K]`.
    size: of the parameters.
  """

  def add(total: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
    (plus, minus), seed = pair
    return total + 0.5 * (plus - minus) * noise(seed, size), None

  # One pair at a time: the noise of all of them may not fit in memory.
  total, _ = jax.lax.scan(add, jnp.zeros(size, jnp.float32), (shaped, seeds))
  return total / shaped.shape[0]


def _keys(seed: Array) -> Array:
  return jax.random.split(jax.random.wrap_key_data(seed))
