"""Converts unrolls to named columns, and the columns to the bytes of Reverb items.

The bytes of an item are a head and some blocks. The head has the id of the item's first unroll and the
size of each block. A column that is large has a block of its own, which is compressed from where its
rows were recorded, and expanded to where a batch has them. The last block has all other columns.

Blocks are compressed by LZ4, which takes as long as Snappy, Reverb's own, and is expanded several times
as fast. That pays even on one machine, where replay keeps items as they arrive: screens of Atari shrink
to a small part of their size. A block that does not shrink by an eighth is stored as it is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import cramjam
import jax
import numpy as np

from agents.types import Array, Unroll
from rundir.errors import NonRetryableError

# Name of the id column of an unroll.
UNROLL_ID = 'unroll_id'
# Bytes of a column in an item from which it is a block of its own.
_LARGE = 1 << 14
_WORTH_IT = 7 / 8  # The largest part of its size to which a block shrinks if it is sent compressed.


class Columns:
  """Names the leaves of an unroll and packs them together with a unique id.

  Reverb handles one array per item, so its cost does not grow with the number of leaves. An item holds
  one unroll or several: a queue delivers each unroll once, so it may deliver them in groups. Reverb's
  cost is then that of the groups.

  Attributes:
    names: of the leaves.
    stored: shape and dtype of every column, including the id.
    unrolls_per_item: unrolls K in an item.
    item_bytes: size of the columns of an item, before they are compressed.
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
    self.unrolls_per_item = unrolls_per_item
    sizes = {
      name: unrolls_per_item * math.prod(shape) * dtype.itemsize
      for name, (shape, dtype) in self.stored.items()
    }
    self.item_bytes = sum(sizes.values())
    self._large = {name: size for name, size in sizes.items() if size >= _LARGE}
    self._small: dict[str, slice] = {}  # Where each of the other columns is in the last block.
    end = 0
    for name, size in sizes.items():
      if name not in self._large:
        self._small[name] = slice(end, end + size)
        end += size
    self._block_bytes = [*self._large.values(), end]
    self._head = struct.Struct(f'<q{len(self._block_bytes)}I')

  def flatten(self, unroll: Unroll) -> dict[str, Array]:
    """Returns the leaves by name."""
    return dict(zip(self.names, jax.tree.leaves(unroll), strict=True))

  def unflatten(self, columns: Mapping[str, Array]) -> Unroll:
    """The inverse of `flatten`."""
    return jax.tree.unflatten(self._structure, [columns[name] for name in self.names])

  def pack(self, columns: Mapping[str, np.ndarray]) -> list[list[Any]]:
    """Returns N / K items for columns `[N, ...]`, the bytes of each in parts.

    What does not shrink is not copied, so the columns must not change while the items are in use.

    Raises:
      ValueError: if the columns differ in N, K does not divide N, or a shape or dtype differs from
        `stored`.
    """
    count = len(columns[UNROLL_ID])
    items, rest = divmod(count, self.unrolls_per_item)
    if rest:
      raise ValueError(f'{count} unrolls are not whole items of {self.unrolls_per_item}')
    blocks = []
    together = np.empty((items, self._block_bytes[-1]), np.uint8)
    for name, (shape, dtype) in self.stored.items():
      column = columns[name]
      if column.shape != (count, *shape) or column.dtype != dtype:
        raise ValueError(
          f'{name} is {column.dtype}{list(column.shape)}, not {dtype}{[count, *shape]}'
        )
      content = np.ascontiguousarray(column).reshape(items, -1).view(np.uint8)
      if name in self._large:
        blocks.append(content)
      else:
        together[:, self._small[name]] = content
    compressed = _compress([*blocks, together])
    ids = columns[UNROLL_ID][:: self.unrolls_per_item].tolist()
    return [
      [self._head.pack(first_id, *map(len, parts)), *parts]
      for first_id, parts in zip(ids, compressed, strict=True)
    ]

  def first_id(self, item: np.ndarray) -> int:
    """Returns the id of the first unroll of an item, uint8 `[n]`.

    Raises:
      NonRetryableError: if the item has another layout; one sentence.
    """
    return self._read_head(item)[0]

  def unpack(self, items: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `pack`, of items uint8 `[n]`; the columns `[N, ...]` are copies.

    Raises:
      NonRetryableError: if an item has another layout; one sentence.
    """
    count = len(items)
    blocks = [np.empty((count, size), np.uint8) for size in self._block_bytes]
    for i, item in enumerate(items):
      _, sizes = self._read_head(item)
      begin = self._head.size
      for size, block in zip(sizes, blocks, strict=True):
        _expand(item[begin : begin + size], block[i])
        begin += size
    *large, together = blocks
    content = dict(zip(self._large, large, strict=True))
    content |= {name: together[:, where] for name, where in self._small.items()}
    return {
      name: np.ascontiguousarray(content[name])
      .reshape(-1)
      .view(dtype)
      .reshape(count * self.unrolls_per_item, *shape)
      for name, (shape, dtype) in self.stored.items()
    }

  def _read_head(self, item: np.ndarray) -> tuple[int, list[int]]:
    """Returns the id of the first unroll of an item, and the sizes of its blocks."""
    if len(item) >= self._head.size:
      first_id, *sizes = self._head.unpack_from(item)
      if self._head.size + sum(sizes) == len(item):
        return first_id, sizes
    raise _another_layout()


def _compress(blocks: Sequence[np.ndarray]) -> list[list[Any]]:
  """Returns the bytes of each block of each of some items, for blocks uint8 `[items, n]`."""
  most = [block.shape[1] + block.shape[1] // 255 + 16 for block in blocks]  # LZ4's own bound.
  # As much as is needed at worst, of which only what is written to takes memory.
  space, begin = memoryview(np.empty(len(blocks[0]) * sum(most), np.uint8)), 0
  items = []
  for rows in zip(*blocks, strict=True):
    parts: list[Any] = []
    for row, bound in zip(rows, most, strict=True):
      size = cramjam.lz4.compress_block_into(row, space[begin : begin + bound], store_size=False)
      if size <= _WORTH_IT * len(row):
        parts.append(space[begin : begin + size])
        begin += size
      else:
        parts.append(memoryview(row))
    items.append(parts)
  return items


def _expand(part: np.ndarray, block: np.ndarray) -> None:
  """Writes to a block, uint8 `[n]`, what a part of an item has of it."""
  if len(part) == len(block):
    block[:] = part
    return
  try:
    found = cramjam.lz4.decompress_block_into(part, block, output_len=len(block))
  except cramjam.DecompressionError:
    found = -1
  if found != len(block):
    raise _another_layout()


def _another_layout() -> NonRetryableError:
  return NonRetryableError(
    'replay holds unrolls of another layout, as of a checkpoint by another version of Launchpod: '
    'continue this run with the version that began it, or begin another.'
  )


def _name(path: tuple[Any, ...]) -> str:
  return '/'.join(str(getattr(p, 'name', getattr(p, 'key', getattr(p, 'idx', p)))) for p in path)
