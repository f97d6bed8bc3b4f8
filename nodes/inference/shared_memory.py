"""Memory that two processes of a machine share, for the large arrays of their messages."""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

# Smaller arrays cost less in the message.
_SMALLEST = 1 << 12
_ALIGNMENT = 64
# Before the arrays: byte 0 is 1 once the receiver has mapped the memory.
_HEADER = _ALIGNMENT
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedMemory:
  """Memory without a name, which ends with the last process that maps it.

  One process creates it and writes arrays; the other receives its file descriptor and reads them. It
  holds the arrays of one message. The writer may use it again once that message has its reply.
  """

  def __init__(self, descriptor: int, num_bytes: int):
    """Maps the memory; `create` and `receive` are the ways to get one.

    Args:
      descriptor: of the memory; may be closed afterwards.
      num_bytes: the size of the memory.

    Raises:
      OSError: if it cannot be mapped.
    """
    self._map = mmap.mmap(descriptor, num_bytes)
    self._read_only = memoryview(self._map).toreadonly()
    self._end = _HEADER

  @classmethod
  def create(cls, num_bytes: int) -> tuple[SharedMemory, int]:
    """Returns new memory and its file descriptor, which the caller closes.

    Args:
      num_bytes: see `bytes_for`.

    Raises:
      OSError: if the system has no such memory.
    """
    descriptor = os.memfd_create('launchpod-rows', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
      os.posix_fallocate(descriptor, 0, num_bytes)  # A lack of memory shows here, not in a write.
      fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
      return cls(descriptor, num_bytes), descriptor
    except OSError:
      os.close(descriptor)
      raise

  @classmethod
  def receive(cls, descriptor: int, max_bytes: int) -> SharedMemory:
    """Maps the memory of another process, and informs that process.

    Args:
      descriptor: as received; the caller closes it.
      max_bytes: maximum size of the memory.

    Raises:
      OSError: if it is not memory made by `create`, is larger than `max_bytes`, or cannot be mapped.
    """
    # A process that reads beyond the end of a file that was cut is killed.
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
      raise OSError('its size may change')
    num_bytes = os.fstat(descriptor).st_size
    if not _HEADER <= num_bytes <= max_bytes:
      raise OSError(f'it has {num_bytes} bytes, but {_HEADER} to {max_bytes} are accepted')
    memory = cls(descriptor, num_bytes)
    memory._map[0] = 1
    return memory

  @property
  def mapped_by_receiver(self) -> bool:
    """Whether the receiver has mapped the memory too."""
    return self._map[0] == 1

  def clear(self) -> None:
    """Makes room for the arrays of the next message."""
    self._end = _HEADER

  def put(self, array: np.ndarray) -> int | None:
    """Copies an array to the memory; returns its offset, None if it is small or does not fit."""
    offset, end = self._end, self._end + _aligned(array.nbytes)
    if array.nbytes < _SMALLEST or end > len(self._map):
      return None
    np.ndarray(array.shape, array.dtype, self._map, offset)[...] = array
    self._end = end
    return offset

  def array(self, dtype: str, shape: Sequence[int], offset: int) -> np.ndarray:
    """Returns the array at an offset: a read-only view, which keeps the memory mapped.

    Raises:
      ValueError: if the array does not lie within the memory.
    """
    kind = np.dtype(dtype)
    count = math.prod(shape)
    end = offset + count * kind.itemsize
    if offset < _HEADER or count < 0 or end > len(self._read_only):
      raise ValueError(
        f'its array from byte {offset} to {end} is not in the {len(self._read_only)} bytes that its '
        'sender shares'
      )
    return np.frombuffer(self._read_only, kind, count, offset).reshape(shape)


def bytes_for(values: Iterable[Any]) -> int:
  """Returns the size of the memory for the large arrays among `values`; 0 if there are none."""
  sizes = [v.nbytes for v in values if isinstance(v, np.ndarray) and v.nbytes >= _SMALLEST]
  return _HEADER + sum(map(_aligned, sizes)) if sizes else 0


def _aligned(num_bytes: int) -> int:
  return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
