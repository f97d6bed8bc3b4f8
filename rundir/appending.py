"""Append-only files of whole records."""

from __future__ import annotations

import contextlib
import os

_BLOCK = 1 << 16


class AppendedFile:
  """Appends records atomically, even if the disk fills up."""

  def __init__(self, path: str):
    """Opens or creates the file; its directory must exist."""
    self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)

  @property
  def size(self) -> int:
    """The file's size in bytes."""
    return os.fstat(self._file).st_size

  def drop_unfinished_line(self) -> None:
    """Truncates the file after its last newline; drops the partial record of a killed process."""
    end = self.size
    while end:
      begin = max(0, end - _BLOCK)
      found = os.pread(self._file, end - begin, begin).rfind(b'\n')
      if found >= 0:
        end = begin + found + 1
        break
      end = begin
    if end != self.size:
      os.ftruncate(self._file, end)

  def append(self, record: bytes) -> None:
    """Appends a record; it has reached the kernel when this returns.

    Raises:
      OSError: if there is no room for the whole record; the file is unchanged.
    """
    size = self.size
    rest = memoryview(record)
    try:
      while rest:
        rest = rest[os.write(self._file, rest) :]
    except OSError:
      with contextlib.suppress(OSError):
        os.ftruncate(self._file, size)
      raise

  def close(self) -> None:
    """Closes the file."""
    os.close(self._file)
