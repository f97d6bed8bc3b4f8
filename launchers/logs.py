"""The logs of nodes: bounded, whatever the nodes write, and read from their end."""

from __future__ import annotations

import os

MAX_BYTES = 64 << 20
KEPT_BYTES = 8 << 20
_TAIL_BYTES = 1 << 20


def bound(path: str, max_bytes: int = MAX_BYTES, kept_bytes: int = KEPT_BYTES) -> None:
  """Moves the end of a log that has grown too large to `path.1`, and empties the log.

  What writes it has it open for appending, and goes on at its new end. Lines that it writes meanwhile
  may be lost.

  Args:
    path: of the log.
    max_bytes: at which it is too large.
    kept_bytes: of its end, which replace those of an earlier `path.1`.

  Raises:
    OSError: if there is no log, or the disk is full.
  """
  if os.path.getsize(path) <= max_bytes:
    return
  end = _end(path, kept_bytes)
  with open(f'{path}.1.tmp', 'wb') as f:
    f.write(end)
  os.replace(f'{path}.1.tmp', f'{path}.1')
  os.truncate(path, 0)


def tail(path: str, lines: int) -> list[str]:
  """Returns the last lines of a log, each with its end of line."""
  return _end(path, _TAIL_BYTES).decode(errors='replace').splitlines(keepends=True)[-lines:]


def _end(path: str, size: int) -> bytes:
  with open(path, 'rb') as f:
    f.seek(max(0, os.path.getsize(path) - size))
    return f.read()
