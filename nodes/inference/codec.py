"""Encodes inference requests and replies as bytes.

Messages hold only data, so a message cannot make its receiver run code.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np


def pack(*values: Any) -> bytes:
  """Returns strings, integers, None and arrays as bytes."""
  return msgpack.packb([_parts(v) if isinstance(v, np.ndarray) else v for v in values])


def unpack(packed: bytes) -> list[Any]:
  """Returns the packed values; arrays are read-only views of the message."""
  return [_array(*v) if isinstance(v, list) else v for v in msgpack.unpackb(packed)]


def _parts(array: np.ndarray) -> tuple[str, tuple[int, ...], memoryview]:
  return array.dtype.str, array.shape, np.ascontiguousarray(array).data


def _array(dtype: str, shape: list[int], data: bytes) -> np.ndarray:
  return np.frombuffer(data, dtype).reshape(shape)
