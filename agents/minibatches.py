"""Minibatches of a batch that may be sharded over devices.

A batch of N samples is N / M groups of M neighbours. Each of the M minibatches of an epoch takes one
sample from every group; which one, a random permutation of the group decides. So every minibatch has
the same share of samples from every device, and taking it moves nothing between devices, as long as a
device holds whole groups. The minibatches do not depend on the number of devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from agents.optimizers import Optimizer
from agents.types import Array, Nest

# A NamedTuple: `N` samples of `L` consecutive rows each, `[N, L, ...]`. Its `core_state` is that before
# the first row, `[N, ...]` per leaf. A sample is an unroll without its bootstrap row, or a single
# transition with L = 1.
Samples = Any


def descend(
  loss: Callable[[Nest, Samples], tuple[Array, dict[str, Array]]],
  optimizer: Optimizer,
  weights: Nest,
  opt_state: optax.OptState,
  samples: Samples,
  orders: Array,
) -> tuple[Nest, optax.OptState, dict[str, Array]]:
  """Takes a gradient step for each minibatch.

  Args:
    loss: takes weights and a minibatch, and returns the loss and metrics.
    optimizer: takes the steps.
    weights: before the first step.
    opt_state: the state of the optimizer before it.
    samples: of the batch.
    orders: what the function `orders` returned.

  Returns:
    The weights and the state of the optimizer after the last step, and the means over the steps of the
    metrics of the loss and of `grad_norm`, that of the gradients before clipping.
  """

  def step(
    carry: tuple[Nest, optax.OptState], order: Array
  ) -> tuple[tuple[Nest, optax.OptState], dict[str, Array]]:
    weights, opt_state = carry
    gradients, metrics = jax.grad(loss, has_aux=True)(weights, take(samples, order))
    weights, opt_state, metrics['grad_norm'] = optimizer.step(gradients, opt_state, weights)
    return (weights, opt_state), metrics

  (weights, opt_state), metrics = jax.lax.scan(step, (weights, opt_state), orders)
  return weights, opt_state, jax.tree.map(jnp.mean, metrics)


def of_transitions(samples: Samples) -> Samples:
  """Returns samples `[N, L, ...]` as `[N * L, 1, ...]`.

  Args:
    samples: with core states before each row, `[N, L, ...]` per leaf; theirs become `[N * L, ...]`.
  """
  single = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), samples)
  return single._replace(core_state=jax.tree.map(lambda x: x[:, 0], single.core_state))


def orders(key: Array, num_epochs: int, num_samples: int, num_minibatches: int) -> Array:
  """Returns, for each minibatch, which member of every group of samples it takes.

  Args:
    key: a typed PRNG key.
    num_epochs: E.
    num_samples: N.
    num_minibatches: M.

  Returns:
    int32 `[E * M, N / M]` from 0 to M-1. In the M rows of an epoch each column is a permutation.

  Raises:
    ValueError: the samples do not divide into the minibatches.
  """
  if num_samples % num_minibatches:
    raise ValueError(
      f'--num_minibatches={num_minibatches} does not divide a batch of {num_samples} samples; make '
      'the batch a multiple.'
    )
  shape = num_epochs, num_minibatches, num_samples // num_minibatches
  order = jnp.argsort(jax.random.uniform(key, shape), axis=1)
  return order.reshape(-1, shape[-1])


def take(samples: Samples, order: Array) -> Samples:
  """Returns the minibatch of one row `[N / M]` of `orders`, `[N / M, L, ...]`."""
  num_groups = order.shape[0]

  def one_of_each_group(x: Array) -> Array:
    groups = x.reshape(num_groups, -1, *x.shape[1:])
    return jax.vmap(lambda group, place: group[place])(groups, order)

  return jax.tree.map(one_of_each_group, samples)
