"""Converts unrolls to named columns, and the columns to the bytes of Reverb items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from agents.types import Array, Unroll

# Name of the id column of an unroll.
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
      raise ValueError(f'{count} unrolls are not whole items of {self.unrolls_per_item}')
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

  def first_id(self, item: np.ndarray) -> int:
    """Returns the id of the first unroll of an item, uint8 `[item_bytes]`."""
    start = self._unroll_bytes - self._bytes[UNROLL_ID]  # The last column.
    return int(item[start : self._unroll_bytes].view(np.int64)[0])

  def unpack(self, items: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `pack`, of items uint8 `[item_bytes]`; the columns `[N, ...]` are copies."""
    count, grouped = len(items), self.unrolls_per_item
    columns = {
      name: np.empty((count, grouped, size), np.uint8) for name, size in self._bytes.items()
    }
    for i, item in enumerate(items):
      unrolls, offset = item.reshape(grouped, self._unroll_bytes), 0
      for name, size in self._bytes.items():
        columns[name][i] = unrolls[:, offset : offset + size]
        offset += size
    return {
      name: columns[name].reshape(-1).view(dtype).reshape(count * grouped, *shape)
      for name, (shape, dtype) in self.stored.items()
    }


def _name(path: tuple[Any, ...]) -> str:
  return '/'.join(str(getattr(p, 'name', getattr(p, 'key', getattr(p, 'idx', p)))) for p in path)
