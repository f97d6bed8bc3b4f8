"""Converts unrolls to named columns, and the columns to the bytes of Reverb items."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from agents.types import Array, Unroll

# Name of the only column of a Reverb item, and of the id column of an unroll.
PACKED = 'unroll'
UNROLL_ID = 'unroll_id'


class Columns:
  """Names the leaves of an unroll and packs them together with a unique id.

  Reverb handles one array per item, so its cost does not grow with the number of leaves. An item holds
  one unroll or several: a queue delivers each unroll once, so it may deliver them in groups. Reverb's
  cost is then that of the groups.

  Attributes:
    names: of the leaves.
    stored: shape and dtype of every column, including the id.
    unrolls_per_item: unrolls K in an item.
    item_bytes: size of an item.
  """

  def __init__(self, example: Unroll, unrolls_per_item: int = 1):
    """Initialises the layout.

    Args:
      example: its leaves have shapes and dtypes without a batch axis.
      unrolls_per_item: unrolls K in an item.
    """
    paths, self._structure = jax.tree_util.tree_flatten_with_path(example)
    self.names = [_name(path) for path, _ in paths]
    self.stored: dict[str, tuple[tuple[int, ...], np.dtype]] = {
      name: (tuple(leaf.shape), np.dtype(leaf.dtype))
      for name, (_, leaf) in zip(self.names, paths, strict=True)
    } | {UNROLL_ID: ((), np.dtype(np.int64))}
    self._bytes = {
      name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in self.stored.items()
    }
    self.unrolls_per_item = unrolls_per_item
    self._unroll_bytes = sum(self._bytes.values())
    self.item_bytes = unrolls_per_item * self._unroll_bytes

  def flatten(self, unroll: Unroll) -> dict[str, Array]:
    """Returns the leaves by name."""
    return dict(zip(self.names, jax.tree.leaves(unroll), strict=True))

  def unflatten(self, columns: Mapping[str, Array]) -> Unroll:
    """The inverse of `flatten`."""
    return jax.tree.unflatten(self._structure, [columns[name] for name in self.names])

  def pack(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns items, uint8 `[N / K, item_bytes]`, for columns `[N, ...]`.

    Raises:
      ValueError: if the columns differ in N, K does not divide N, or a shape or dtype differs from
        `stored`.
    """
    count = len(columns[UNROLL_ID])
    if count % self.unrolls_per_item:
      raise ValueError(f'{count} unrolls are no items of {self.unrolls_per_item}')
    packed = np.empty((count, self._unroll_bytes), np.uint8)
    offset = 0
    for name, (shape, dtype) in self.stored.items():
      column = columns[name]
      if column.shape != (count, *shape) or column.dtype != dtype:
        raise ValueError(
          f'{name} is {column.dtype}{list(column.shape)}, not {dtype}{[count, *shape]}'
        )
      end = offset + self._bytes[name]
      packed[:, offset:end] = np.ascontiguousarray(column).reshape(count, -1).view(np.uint8)
      offset = end
    return packed.reshape(-1, self.item_bytes)

  def unroll_ids(self, packed: np.ndarray) -> np.ndarray:
    """Returns the ids of the unrolls in packed items `[M, item_bytes]`, int64 `[M, K]`."""
    size = self._bytes[UNROLL_ID]  # The last column.
    unrolls = packed.reshape(len(packed), self.unrolls_per_item, self._unroll_bytes)
    return np.ascontiguousarray(unrolls[..., -size:]).view(np.int64)[..., 0]

  def unpack(self, packed: np.ndarray) -> dict[str, np.ndarray]:
    """The inverse of `pack`; the columns are contiguous copies."""
    packed = packed.reshape(-1, self._unroll_bytes)
    columns, offset = {}, 0
    for name, (shape, dtype) in self.stored.items():
      end = offset + self._bytes[name]
      column = np.ascontiguousarray(packed[:, offset:end])
      columns[name] = column.view(dtype).reshape(len(packed), *shape)
      offset = end
    return columns


def _name(path: tuple[Any, ...]) -> str:
  return '/'.join(str(getattr(p, 'name', getattr(p, 'key', getattr(p, 'idx', p)))) for p in path)
