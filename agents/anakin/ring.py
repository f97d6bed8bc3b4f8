"""Prioritized replay in rings on the devices, as pure functions.

A ring holds the last S unrolls of each of its E environments. All environments finish their unrolls
together, so a new unroll of each fills one slot, and the slots are filled in turn. Each ring is sampled
on its own, in proportion to priority^exponent, and gives the same number of unrolls to a batch.

Every leaf is `[R, ...]` for R rings with random numbers of their own, so that a shard of whole rings
behaves as all of them do.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from agents.types import Array, Unroll


class Ring(NamedTuple):
  """R rings of S slots for E environments each."""

  unrolls: Unroll  # `[R, S, E, ...]`.
  weights: Array  # float32 `[R, S, E]`, priority^exponent; 0 where no unroll is.
  key: Array  # uint32 `[R, ...]`, data of the PRNG keys for the next samples.
  # int32 `[]`, unrolls of each environment so far, or S to 2 S with the same remainder of division by S;
  # below 0 they are incomplete.
  count: Array


class Sample(NamedTuple):
  """A batch of K unrolls from each ring."""

  unrolls: Unroll  # `[R K, ...]`, those of a ring together.
  probabilities: Array  # float32 `[R K]`, of each unroll within its ring.
  place: Array  # int32 `[R, K]`, slot * E + environment.


def empty(unrolls: Unroll, num_rings: int, slots: int, num_incomplete: int, key: Array) -> Ring:
  """Returns rings without unrolls.

  Args:
    unrolls: a batch of one unroll of each environment, `[B, ...]`, or its shapes and dtypes; neighbours
      share a ring.
    num_rings: R, a divisor of B.
    slots: S.
    num_incomplete: how many unrolls of each environment lack rows; the next one replaces each.
    key: a typed PRNG key.
  """

  def leaf(x: Array) -> Array:
    shape = (num_rings, slots, x.shape[0] // num_rings, *x.shape[1:])
    return jnp.zeros(shape, x.dtype)

  return Ring(
    unrolls=jax.tree.map(leaf, unrolls),
    weights=leaf(jax.ShapeDtypeStruct(unrolls.environment_id.shape, jnp.float32)),
    key=jax.random.key_data(jax.random.split(key, num_rings)),
    count=jnp.int32(-num_incomplete),
  )


def insert(ring: Ring, unrolls: Unroll, weights: Array) -> Ring:
  """Puts a new unroll of each environment in place of the oldest ones.

  Args:
    ring: the rings.
    unrolls: `[B, ...]`, in the order of `empty`.
    weights: float32 `[B]`, priority^exponent, above 0.
  """
  num_rings, slots, _ = ring.weights.shape
  slot = jnp.maximum(ring.count, 0) % slots

  def put(old: Array, new: Array) -> Array:
    new = new.reshape(num_rings, -1, *new.shape[1:])
    return jax.lax.dynamic_update_index_in_dim(old, new, slot, axis=1)

  stored, weights = jax.tree.map(put, (ring.unrolls, ring.weights), (unrolls, weights))
  # Full rings count round by round, so that the count cannot overflow.
  count = jnp.where(ring.count < slots, ring.count, ring.count % slots + slots) + 1
  return ring._replace(unrolls=stored, weights=weights, count=count)


def sample(ring: Ring, batch_size: int) -> tuple[Array, Sample]:
  """Samples with replacement.

  Args:
    ring: rings with at least one complete unroll of each environment.
    batch_size: K unrolls from each ring.

  Returns:
    The `key` of the rings for later samples, and the batch.
  """
  num_rings, slots, num_envs = ring.weights.shape
  keys = jax.vmap(jax.random.split)(jax.random.wrap_key_data(ring.key))
  uniform = jax.vmap(lambda key: jax.random.uniform(key, (batch_size,)))(keys[:, 1])
  filled = jnp.minimum(ring.count, slots) * num_envs
  place, probabilities = jax.vmap(choose, in_axes=(0, 0, None))(
    _flat(ring.weights), uniform, filled
  )
  unrolls = jax.tree.map(lambda x: jax.vmap(lambda x, i: x[i])(_flat(x), place), ring.unrolls)
  unrolls, probabilities = jax.tree.map(
    lambda x: x.reshape(num_rings * batch_size, *x.shape[2:]), (unrolls, probabilities)
  )
  return jax.random.key_data(keys[:, 0]), Sample(unrolls, probabilities, place)


def choose(weights: Array, uniform: Array, filled: Array) -> tuple[Array, Array]:
  """Returns the places that uniform numbers choose in proportion to the weights.

  Args:
    weights: float32 `[N]`.
    uniform: float32 `[K]` in [0, 1): the share of the sum of all weights that lies before the choice.
    filled: int32 `[]`; places from there on have weight 0 and are never chosen, whatever the rounding.

  Returns:
    Places, int32 `[K]`, and their probabilities, float32 `[K]`.
  """
  sums = jnp.cumsum(weights)
  place = jnp.searchsorted(sums, uniform * sums[-1], side='right').astype(jnp.int32)
  place = jnp.minimum(place, filled - 1)
  return place, weights[place] / sums[-1]


def reweigh(ring_weights: Array, place: Array, weights: Array) -> Array:
  """Returns the weights of rings, `[R, S, E]`, with those of a sample replaced.

  An unroll that is in the batch more than once gets the largest of its weights, so that the result does
  not depend on their order.

  Args:
    ring_weights: float32 `[R, S, E]`.
    place: int32 `[R, K]`, of the sample.
    weights: float32 `[R K]`, in the order of the sample.
  """

  def one(old: Array, place: Array, weights: Array) -> Array:
    return old.at[place].set(0.0).at[place].max(weights)

  new = jax.vmap(one)(_flat(ring_weights), place, weights.reshape(place.shape))
  return new.reshape(ring_weights.shape)


def _flat(x: Array) -> Array:
  """Merges slots and environments, `[R, S, E, ...]` to `[R, S E, ...]`."""
  return x.reshape(x.shape[0], -1, *x.shape[3:])
