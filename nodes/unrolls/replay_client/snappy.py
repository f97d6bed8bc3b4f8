"""Snappy, the format of the data of Reverb's tensors: compressed, or stored as it is.

Stored data is one literal, which readers take without a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from nodes.unrolls.replay_client import wire


def stored_head(size: int) -> bytes:
  """Returns what precedes `size` bytes, at least 1, to make them snappy data that is not compressed."""
  last = size - 1
  if last < 60:
    return wire.varint(size) + bytes((last << 2,))
  count = (last.bit_length() + 7) // 8
  return wire.varint(size) + bytes((59 + count << 2,)) + last.to_bytes(count, 'little')


def compressed(data: Any) -> Any:
  """Returns a buffer of data compressed."""
  return memoryview(_compressor()[0](data))


def expanded(data: memoryview, size: int) -> Any:
  """Returns a buffer of `size` bytes; a part of `data` itself if they are stored.

  Raises:
    ValueError: if the data is damaged or has another size.
  """
  if not size:
    return b''
  head = stored_head(size)
  if len(data) == len(head) + size and data[: len(head)] == head:
    return data[len(head) :]
  try:
    found = memoryview(_compressor()[1](data))
  except Exception as error:
    raise ValueError(f'the data of an item is damaged: {error}') from error
  if len(found) != size:
    raise ValueError(f'an item has {len(found)} bytes instead of {size}')
  return found


@functools.lru_cache(maxsize=None)
def _compressor() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
  import cramjam  # Takes 10 ms, which processes without compressed rows are spared.

  return cramjam.snappy.compress_raw, cramjam.snappy.decompress_raw
