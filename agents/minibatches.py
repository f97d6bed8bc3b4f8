"""Minibatches of a batch that may be sharded over devices.

A batch of N samples is N / M groups of M neighbours. Each of the M minibatches of an epoch takes one
sample from every group; which one, a random permutation of the group decides. So every minibatch has
the same share of samples from every device, and taking it moves nothing between devices, as long as a
device holds whole groups. The minibatches do not depend on the number of devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from agents import counters
from agents.axes import swapped
from agents.minibatches_config import MinibatchesConfig
from agents.networks.recurrent import RecurrentNetwork
from agents.optimizers import Optimizer
from agents.types import Array, Nest

# A NamedTuple: `N` samples of `L` consecutive rows each, `[N, L, ...]`. Its `core_state` is that before
# the first row, `[N, ...]` per leaf, and its `timestep` what the network saw. A sample is an unroll
# without its bootstrap row, or a single transition with L = 1.
Samples = Any


class MinibatchState(NamedTuple):
  """The learner state of an agent that learns from minibatches."""

  params: Nest
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.
  key: Array  # uint32 `[...]`, data of the PRNG key of all permutations; it never changes.


def make_samples(
  config: MinibatchesConfig, rows: Samples, core_state: Nest, network: RecurrentNetwork
) -> Samples:
  """Returns the samples of a batch of unrolls.

  Args:
    config: says whether a sample is an unroll or a transition.
    rows: `[T, B, ...]`, without the bootstrap row; their `core_state` is not used.
    core_state: before the first row, `[B, ...]` per leaf.
    network: has no core where samples are transitions.
  """
  if config.minibatches_of_unrolls:
    return swapped(rows._replace(core_state=None))._replace(core_state=core_state)
  of_rows = network.core_state_of_rows(core_state, rows.timestep)
  samples = swapped(rows._replace(core_state=of_rows))
  single = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), samples)
  return single._replace(core_state=jax.tree.map(lambda x: x[:, 0], single.core_state))


def learn(
  config: MinibatchesConfig,
  loss: Callable[[Nest, Samples], tuple[Array, dict[str, Array]]],
  optimizer: Optimizer,
  state: MinibatchState,
  weights: Nest,
  samples: Samples,
) -> tuple[Nest, optax.OptState, dict[str, Array]]:
  """Takes the gradient steps of one learner step: each pass has every sample in one minibatch.

  Equal states and samples give equal minibatches.

  Args:
    config: how many passes, in how many minibatches.
    loss: takes weights and a minibatch, and returns the loss and metrics.
    optimizer: takes the steps.
    state: before the update; its `params` are not used.
    weights: those of its parameters that are trained.
    samples: of the batch.

  Returns:
    The weights and the state of the optimizer after the last step, and metrics. Those of the loss and
    `grad_norm`, of the gradients before clipping, are means over the steps. `gradient_steps` counts
    those of the run, and `learning_rate` is that of the first step.
  """
  key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.learner_steps)

  def step(
    carry: tuple[Nest, optax.OptState], order: Array
  ) -> tuple[tuple[Nest, optax.OptState], dict[str, Array]]:
    weights, opt_state = carry
    gradients, metrics = jax.grad(loss, has_aux=True)(weights, take(samples, order))
    weights, opt_state, metrics['grad_norm'] = optimizer.step(gradients, opt_state, weights)
    return (weights, opt_state), metrics

  (weights, opt_state), of_steps = jax.lax.scan(
    step,
    (weights, state.opt_state),
    orders(key, config.num_epochs, samples.valid.shape[0], config.num_minibatches),
  )
  updates = counters.saturated(state.learner_steps + 1).astype(jnp.float32)
  metrics = {
    **jax.tree.map(jnp.mean, of_steps),
    'gradient_steps': updates * config.gradient_steps_per_update,
    'learning_rate': optimizer.learning_rate(state.learner_steps),
  }
  return weights, opt_state, metrics


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
