"""Minibatches of a batch that may be sharded over devices.

A batch of N samples is N / M groups of M neighbours. Each of the M minibatches of an epoch takes one
sample from every group; which one, a random permutation of the group decides. So every minibatch has
the same share of samples from every device, and taking it moves nothing between devices, as long as a
device holds whole groups. The minibatches do not depend on the number of devices.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from agents.types import Array, Nest, Timestep


class Samples(NamedTuple):
  """What PPO's loss takes: `N` samples of `L` consecutive rows each, `[N, L, ...]`.

  A sample is an unroll without its bootstrap row, or a single transition with L = 1.
  """

  timestep: Timestep
  action: Array  # As executed.
  draw: Array  # What mu sampled; see `agents.actor_critic.distributions`.
  log_mu: Array  # float32, log-probability of the draw under the policy mu that acted.
  valid: Array  # bool; false where the row is LAST, so that no transition begins there.
  value: Array  # float32, V before the update.
  target: Array  # float32, of V.
  advantage: Array  # float32.
  core_state: Nest  # `[N, ...]` per leaf, before the first row; no time axis.


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
