"""Reads a file while a process writes to its end, and frees the disk space of what has been read.

This module uses only the standard library, because `launchers.ray.machines` sends it to machines by
value.
"""

from __future__ import annotations

import ctypes
import os

STEP = 1 << 20
# A reader that is further behind leaves out all but the end.
MAX_BEHIND = 64 << 20
KEPT_BYTES = 8 << 20
_MAX_READ = 1 << 20
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # Modes of fallocate(2).


def read(file: int, offset: int) -> tuple[bytes, int]:
  """Returns the next bytes of a file, at most 1 MiB and a line, and the offset of those that follow.

  If more than `MAX_BEHIND` bytes have not been read, all but the last `KEPT_BYTES` are left out. A line
  says so in their place.

  Args:
    file: descriptor.
    offset: bytes that have been read or left out before.
  """
  note, behind = b'', os.fstat(file).st_size - offset
  if behind > MAX_BEHIND:
    left_out = behind - KEPT_BYTES
    offset += left_out
    note = f'\n({left_out:,} bytes of output are left out here)\n'.encode()
  new = os.pread(file, _MAX_READ, offset)
  return note + new, offset + len(new)


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
