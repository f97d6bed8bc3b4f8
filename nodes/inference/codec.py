"""A request for actions, or its answer, as bytes.

Only data is packed, so a message cannot make its receiver run code.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np


def pack(*values: Any) -> bytes:
  """Returns strings, whole numbers, None and arrays as bytes."""
  return msgpack.packb([_parts(v) if isinstance(v, np.ndarray) else v for v in values])


def unpack(packed: bytes) -> list[Any]:
  """Returns what was packed; arrays are read-only and share the memory of the message."""
  return [_array(*v) if isinstance(v, list) else v for v in msgpack.unpackb(packed)]


def _parts(array: np.ndarray) -> tuple[str, tuple[int, ...], memoryview]:
  return array.dtype.str, array.shape, np.ascontiguousarray(array).data


def _array(dtype: str, shape: list[int], data: bytes) -> np.ndarray:
  return np.frombuffer(data, dtype).reshape(shape)
