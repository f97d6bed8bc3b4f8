"""The entropy of tanh(u), u Gaussian, by quadrature for narrow and wide Gaussians."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from agents.types import Array

_NODES = 32
_WIDE = 1.0  # Standard deviation from which `_wide` is used.
_REACH = 10.0  # log(1 + exp(-2 |u|)) is below 3e-9 for |u| above this.


def entropy(mean: Array, std: Array) -> Array:
  """Returns the entropy in nats of tanh(u), u ~ N(mean, std^2), elementwise.

  It is the entropy of u plus E[log dtanh(u)/du], which has no closed form. Both quadratures have fixed
  nodes, so they need no random numbers and the gradient is that of the integral. For standard deviations
  from 0.02 to 100, value and gradient have an error below 1e-5, relative where they are above 1.

  Args:
    mean: float32 `[...]`.
    std: float32 `[...]`, above 0.
  """
  # At a tie, `minimum` and `maximum` would halve the gradient.
  is_narrow = std < _WIDE
  narrow, wide = jnp.where(is_narrow, std, _WIDE), jnp.where(is_narrow, _WIDE, std)
  squashing = jnp.where(is_narrow, _narrow(mean, narrow), _wide(mean, wide))
  return jnp.log(std) + 0.5 * np.log(2 * np.pi * np.e) + squashing


def log_slope(u: Array) -> Array:
  """Returns log dtanh(u)/du = log(1 - tanh(u)^2), elementwise, in a form that is exact for large u."""
  return 2.0 * (np.log(2.0) - u - jax.nn.softplus(-2.0 * u))


def _narrow(mean: Array, std: Array) -> Array:
  """Returns E[log dtanh(u)/du] by Gauss-Hermite quadrature; it must be smooth on the scale of u."""
  nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
  draws = mean[..., None] + std[..., None] * nodes.astype(np.float32)
  return _weighted(log_slope(draws), weights / weights.sum())


def _wide(mean: Array, std: Array) -> Array:
  """Returns E[log dtanh(u)/du] where u is at least as wide as the bend of tanh.

  log dtanh(u)/du = 2 log 2 - 2 |u| - 2 log(1 + exp(-2 |u|)). E|u| is that of the folded normal. The last
  term vanishes beyond the bend, so Gauss-Legendre quadrature on each side of 0 integrates it there,
  against the density of u.
  """
  standard = mean / std
  density = jnp.exp(-0.5 * jnp.square(standard)) * np.sqrt(1 / (2 * np.pi))
  absolute = 2 * std * density + mean * jax.lax.erf(standard * np.sqrt(0.5))
  nodes, weights = np.polynomial.legendre.leggauss(_NODES)
  nodes, weights = 0.5 * _REACH * (1 + nodes), 0.5 * _REACH * weights
  nodes = np.concatenate([-nodes, nodes])
  bend = np.tile(weights, 2) * np.log1p(np.exp(-2 * np.abs(nodes)))
  at_nodes = jnp.exp(
    -0.5 * jnp.square((nodes.astype(np.float32) - mean[..., None]) / std[..., None])
  )
  left = _weighted(at_nodes, bend) / (std * np.sqrt(2 * np.pi))
  return 2 * np.log(2.0) - 2 * absolute - 2 * left


def _weighted(values: Array, weights: np.ndarray) -> Array:
  # Accelerators multiply matrices with fewer bits, unless they are told not to.
  return jnp.matmul(values, weights.astype(np.float32), precision='highest')
