"""Bounds the size of node logs, and reads their last lines."""

from __future__ import annotations

import os

from rundir import files, reading

MAX_BYTES = 64 << 20
KEPT_BYTES = 8 << 20
_TAIL_BYTES = 1 << 20


def bound(path: str, max_bytes: int = MAX_BYTES, kept_bytes: int = KEPT_BYTES) -> None:
  """Moves the end of a log that is too large to `path.1`, and truncates the log.

  The writer has the log open for appending and continues at its new end. Lines written during the call
  may be lost.

  Args:
    path: path of the log.
    max_bytes: largest size that is left alone.
    kept_bytes: bytes kept from the end; they replace an earlier `path.1`.

  Raises:
    OSError: if there is no log, or its end cannot be written.
  """
  if os.path.getsize(path) <= max_bytes:
    return
  end = _end(path, kept_bytes)
  try:
    files.write(f'{path}.1', end)
  except OSError as error:
    if not files.is_full(error):
      raise
    os.truncate(path, 0)  # Makes room for the end of the log.
    files.write(f'{path}.1', end)
  else:
    os.truncate(path, 0)


def tail(path: str, lines: int) -> list[str]:
  """Returns the last lines of a log, with their line ends."""
  return _end(path, _TAIL_BYTES).decode(errors='replace').splitlines(keepends=True)[-lines:]


def _end(path: str, size: int) -> bytes:
  with reading.opened(path) as f:
    f.seek(max(0, os.path.getsize(path) - size))
    return f.read(size)  # The writer may append faster than this reads.
