"""The cross-entropy method, which maximises Q over actions (Kalashnikov et al. 2018, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from agents.types import Array


def maximise(
  score: Callable[[Array], Array],
  key: Array,
  num_dimensions: int,
  *,
  num_samples: int,
  num_elites: int,
  num_iterations: int,
  min_std: float,
) -> Array:
  """Returns the best of all samples and the mean of the last elites.

  In several dimensions the mean usually scores higher; between two optima a sample does.

  Each iteration samples a Gaussian with independent dimensions, clips the samples to [-1, 1], and fits
  the next Gaussian to the elites, the samples with the highest scores. The first has mean 0 and standard
  deviation 1.

  Args:
    score: maps points `[N, num_dimensions]` in [-1, 1] to float32 `[N]`.
    key: a typed PRNG key, `[]`.
    num_dimensions: of a point.
    num_samples: samples of an iteration.
    num_elites: elites of an iteration, at most as many.
    num_iterations: at least 1.
    min_std: smallest standard deviation in a dimension, so that no iteration samples a single point.

  Returns:
    The point, float32 `[num_dimensions]`.
  """
  mean, std = jnp.zeros(num_dimensions), jnp.ones(num_dimensions)
  best, highest = mean, jnp.asarray(-jnp.inf)
  for iteration_key in jax.random.split(key, num_iterations):
    noise = jax.random.normal(iteration_key, (num_samples, num_dimensions))
    samples = jnp.clip(mean + std * noise, -1.0, 1.0)
    scores = score(samples)
    # A full sort: XLA gathers a sharded batch for `top_k`.
    elites = samples[jnp.argsort(-scores)[:num_elites]]
    mean, std = jnp.mean(elites, axis=0), jnp.maximum(jnp.std(elites, axis=0), min_std)
    best = jnp.where(jnp.max(scores) > highest, elites[0], best)
    highest = jnp.maximum(jnp.max(scores), highest)
  candidates = jnp.stack([best, mean])
  return candidates[jnp.argmax(score(candidates))]
