"""Files that grow by whole records."""

from __future__ import annotations

import contextlib
import os

_BLOCK = 1 << 16


class AppendedFile:
  """Takes records, each whole or not at all, also on a disk that fills up."""

  def __init__(self, path: str):
    """Opens the file, or makes it; its directory exists."""
    self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)

  @property
  def size(self) -> int:
    """Bytes."""
    return os.fstat(self._file).st_size

  def drop_unfinished_line(self) -> None:
    """Removes what is behind the last end of a line: of a record within which a process was killed."""
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
    """Adds a record; the kernel has it when this returns.

    Raises:
      OSError: if there is no room for all of it; the file is as it was.
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
