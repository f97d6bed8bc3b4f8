"""Snappy, the format of the data of Reverb's tensors: compressed, or stored as one literal.

`Writer` stores a row as it is, so its readers need no copy. Only Reverb's own client compresses.
"""

from __future__ import annotations

from typing import Any

import cramjam

from nodes.unrolls.replay_client import wire


def stored_head(size: int) -> bytes:
  """Returns what precedes `size` bytes, at least 1, to make them snappy data that is not compressed."""
  last = size - 1
  if last < 60:
    return wire.varint(size) + bytes((last << 2,))
  count = (last.bit_length() + 7) // 8
  return wire.varint(size) + bytes((59 + count << 2,)) + last.to_bytes(count, 'little')


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
    found = memoryview(cramjam.snappy.decompress_raw(data))
  except Exception as error:
    raise ValueError(f'the data of an item is damaged: {error}') from error
  if len(found) != size:
    raise ValueError(f'an item has {len(found)} bytes instead of {size}')
  return found
