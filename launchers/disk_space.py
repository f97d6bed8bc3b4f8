"""Frees the disk space of a file's beginning, which has been read, while a process writes to its end.

This module uses only the standard library, because `launchers.ray.machines` sends it to machines by
value.
"""

from __future__ import annotations

import ctypes

STEP = 1 << 20
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # Modes of fallocate(2).


class Reclaimer:
  """Frees the disk space of what has been read of a file, `STEP` bytes at least at a time."""

  def __init__(self, file: int):
    """Initialises a reclaimer of a file of which nothing has been read; `file` is its descriptor."""
    self._file = file
    self._freed = 0

  def reclaim(self, end: int) -> None:
    """Frees the first `end` bytes, which have been read."""
    if end - self._freed >= STEP:
      release(self._file, end)
      self._freed = end


def release(file: int, end: int) -> bool:
  """Frees the disk space of a file's first bytes, which then read as zeros.

  The file keeps its size, so that offsets stay valid and a process can continue to write to it.

  Args:
    file: descriptor.
    end: number of bytes.

  Returns:
    False where the file system cannot do so.
  """
  fallocate = ctypes.CDLL(None).fallocate
  fallocate.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64
  return int(fallocate(file, _PUNCH_HOLE_KEEP_SIZE, 0, end)) == 0
