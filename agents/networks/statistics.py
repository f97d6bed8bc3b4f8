"""Running mean and variance of what an agent sees, and normalisation by them.

Statistics are part of the parameters, beside the weights, as entries of the same dict:

    params  the weights, which gradients train.
    observation_statistics, return_statistics
            as returned by `initial`, with the options of `agents.actor_critic.normalization`.

A network normalises observations if its parameters have `observation_statistics`.
"""

from __future__ import annotations

import jax.numpy as jnp

from agents.types import Array

OBSERVATIONS = 'observation_statistics'
RETURNS = 'return_statistics'

# Of normalised values, as in CleanRL (ppo_continuous_action.py).
LIMIT = 10.0
# Added to variances, as in Gymnasium's NormalizeObservation: a constant is divided by 1e-4.
_EPSILON = 1e-8
# From here on older rows fade: a batch has a share of the mean that float32 can still add.
MAX_COUNT = 1e8

Statistics = dict[str, Array]


def initial(shape: tuple[int, ...]) -> Statistics:
  """Returns the statistics of no values of a shape; with them `normalized` only clips."""
  return {
    'count': jnp.zeros((), jnp.float32),  # Values so far, at most `MAX_COUNT`.
    'mean': jnp.zeros(shape, jnp.float32),
    'variance': jnp.ones(shape, jnp.float32),
  }


def merged(statistics: Statistics, values: Array, valid: Array | None = None) -> Statistics:
  """Returns the statistics with the values of a batch, merged as by Chan et al. 1982.

  Their paper is "Updating formulae and a pairwise algorithm for computing sample variances". The means
  over the batch are global under `jax.jit`, so sharding changes them by rounding only.

  Args:
    statistics: as returned by `initial` or by this function, of shape S.
    values: `[..., *S]`, of any dtype.
    valid: bool `[...]`, which values count; None for all.
  """
  leading = tuple(range(values.ndim - statistics['mean'].ndim))
  if valid is None:
    valid = jnp.ones(values.shape[: len(leading)], bool)
  number = jnp.sum(valid, dtype=jnp.float32)
  where = valid.reshape(valid.shape + (1,) * (values.ndim - valid.ndim))

  def mean(x: Array) -> Array:
    return jnp.sum(jnp.where(where, x, 0.0), axis=leading) / jnp.maximum(number, 1.0)

  # Float32 loses the variance of values far from 0, so they are centred twice before they are squared.
  shifted = values.astype(jnp.float32) - statistics['mean']
  centre = mean(shifted)
  rest = shifted - centre
  correction = mean(rest)
  variance = jnp.maximum(mean(jnp.square(rest)) - jnp.square(correction), 0.0)
  delta = centre + correction
  count = statistics['count'] + number
  share = number / jnp.maximum(count, 1.0)
  added = variance + (1.0 - share) * jnp.square(delta)
  return {
    'count': jnp.minimum(count, MAX_COUNT),
    'mean': statistics['mean'] + share * delta,
    'variance': (1.0 - share) * statistics['variance'] + share * added,
  }


def pooled(statistics: Statistics) -> Statistics:
  """Returns the statistics of all values together of K statistics, whose arrays are stacked."""
  counts = statistics['count']
  shares = counts / jnp.maximum(jnp.sum(counts), 1.0)

  def mean(x: Array) -> Array:
    return jnp.tensordot(shares, x, axes=1)

  # The deviations from one of the means are small where the values themselves are far from 0.
  shifted = statistics['mean'] - statistics['mean'][0]
  centre = mean(shifted)
  variance = mean(statistics['variance'] + jnp.square(shifted - centre))
  some = jnp.sum(counts) > 0.0
  return {
    'count': jnp.minimum(jnp.sum(counts), MAX_COUNT),
    'mean': statistics['mean'][0] + centre,
    'variance': jnp.where(some, variance, 1.0),
  }


def standard_deviation(statistics: Statistics) -> Array:
  """Returns the standard deviation, float32, of the shape of the values; at least 1e-4."""
  return jnp.sqrt(statistics['variance'] + _EPSILON)


def normalized(statistics: Statistics, observation: Array) -> Array:
  """Returns observations minus their mean over their standard deviation, clipped to `LIMIT`.

  Args:
    statistics: of observations of shape S.
    observation: `[T, B, *S]`, or stacked frames `[T, B, *S, k]`, each of which is normalised alike;
      frames before the first of an episode count as observations of zeros.

  Returns:
    float32 of the same shape.
  """
  mean, std = statistics['mean'], standard_deviation(statistics)
  if observation.ndim > mean.ndim + 2:
    mean, std = mean[..., None], std[..., None]
  return jnp.clip((observation.astype(jnp.float32) - mean) / std, -LIMIT, LIMIT)
