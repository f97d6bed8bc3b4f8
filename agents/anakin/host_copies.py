"""Moves a state between its devices, possibly of several processes, and NumPy arrays.

A process sees only its own part of an array that is spread over the devices of several. All processes
call each function here, in the same order, and every one has the whole state in its memory then.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.types import Array, Nest


class HostCopies:
  """Copies a state from the devices of a mesh and back."""

  def __init__(self, mesh: Mesh, piece_bytes: int = 2**24):
    """Initialises it for a mesh.

    Args:
      mesh: with the axis `data`.
      piece_bytes: a larger leaf that is spread over processes is copied piece by piece, because every
        device holds a whole piece then, and may be nearly full of replay.
    """
    self._piece_bytes = piece_bytes
    everywhere = NamedSharding(mesh, PartitionSpec())
    self._gather = jax.jit(lambda leaves: [key_data(x) for x in leaves], out_shardings=everywhere)
    # The first axis is spread over devices and the second is not, so each device slices its own part.
    self._slice = jax.jit(
      lambda x, start, size: jax.lax.dynamic_slice_in_dim(x, start, size, axis=1),
      static_argnums=2,
      out_shardings=everywhere,
    )

  def get(self, tree: Nest) -> Nest:
    """Returns global arrays as NumPy arrays; typed PRNG keys as their data, uint32."""
    structure: Any
    leaves, structure = jax.tree.flatten(tree)
    here = [x.is_fully_addressable or (x.is_fully_replicated and not is_key(x)) for x in leaves]
    large = [not is_key(x) and x.ndim > 1 and x.nbytes > self._piece_bytes for x in leaves]
    found: list[Any] = [None] * len(leaves)
    spread = [i for i in range(len(leaves)) if not here[i] and not large[i]]
    for i, x in zip(spread, self._gather([leaves[i] for i in spread]), strict=True):
      found[i] = x
    for i, x in enumerate(leaves):
      if here[i]:
        found[i] = key_data(x)
      elif large[i]:
        found[i] = self._get_large(x)
    return structure.unflatten(jax.device_get(found))

  def put(self, tree: Nest, sharding: NamedSharding, types: Nest) -> Nest:
    """Returns NumPy arrays as global arrays; arrays that are on devices move at most among these.

    Args:
      tree: as from `get`, or global arrays, or some of each.
      sharding: of every leaf.
      types: shapes and dtypes of the leaves, those of typed PRNG keys where such are wanted.
    """

    def one(wanted: jax.ShapeDtypeStruct, x: Any) -> Array:
      if isinstance(x, jax.Array):
        return jax.device_put(x, sharding)
      typed = _as_typed(wanted, np.asarray(x))
      return jax.make_array_from_callback(wanted.shape, sharding, lambda index: typed[index])

    return jax.tree.map(one, types, tree)

  def _get_large(self, x: Array) -> np.ndarray:
    pieces = min(x.shape[1], math.ceil(x.nbytes / self._piece_bytes))
    size = math.ceil(x.shape[1] / pieces)
    found = np.empty(x.shape, x.dtype)
    for start in range(0, x.shape[1], size):
      start = min(start, x.shape[1] - size)  # The last piece may overlap with the one before.
      found[:, start : start + size] = self._slice(x, np.int32(start), size)
    return found


def is_key(x: Any) -> bool:
  """Returns whether an array, or its shape and dtype, is of typed PRNG keys."""
  return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def key_data(x: Array) -> Array:
  """Returns the data of typed PRNG keys, and other arrays as they are."""
  return jax.random.key_data(x) if is_key(x) else x


def _as_typed(wanted: jax.ShapeDtypeStruct, x: Any) -> Any:
  """Returns the data of keys as typed PRNG keys where those are wanted, and other arrays as they are."""
  if not is_key(wanted):
    return x
  return jax.random.wrap_key_data(x, impl=jax.random.key_impl(jnp.zeros((), wanted.dtype)))
