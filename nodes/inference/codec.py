"""Encodes inference requests and replies as bytes.

Messages hold only data, so a message cannot make its receiver run code. Instead of its content, an array
may have an offset into memory that both sides share.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from nodes.inference.shared_memory import SharedMemory


def pack(*values: Any, memory: SharedMemory | None = None) -> bytes:
  """Returns strings, integers, None and arrays as bytes.

  Args:
    *values: to pack.
    memory: gets the large arrays, in place of those of the previous message.

  Raises:
    TypeError: for anything else, such as a list in place of an array.
  """
  if memory is not None:
    memory.clear()
  return msgpack.packb([_packable(value, memory) for value in values])


def unpack(packed: bytes, memory: SharedMemory | None = None) -> list[Any]:
  """Returns the packed values; arrays are read-only views of the message or of `memory`.

  Raises:
    ValueError: if an array is not where the message says.
    Exception: if it is not a message of `pack`.
  """
  return [_array(memory, *v) if isinstance(v, list) else v for v in msgpack.unpackb(packed)]


def _packable(value: Any, memory: SharedMemory | None) -> Any:
  if isinstance(value, np.ndarray):
    return _parts(value, memory)
  if isinstance(value, (list, tuple, dict)):
    raise TypeError(f'{value!r} is a {type(value).__name__}, not an array')
  return value


def _parts(
  array: np.ndarray, memory: SharedMemory | None
) -> tuple[str, tuple[int, ...], memoryview | int]:
  offset = memory.put(array) if memory is not None else None
  data = np.ascontiguousarray(array).data if offset is None else offset
  return array.dtype.str, array.shape, data


def _array(
  memory: SharedMemory | None, dtype: str, shape: list[int], data: bytes | int
) -> np.ndarray:
  if isinstance(data, bytes):
    return np.frombuffer(data, dtype).reshape(shape)
  if memory is None:
    raise ValueError('its array is in memory that its sender does not share')
  return memory.array(dtype, shape, data)
