"""Files that are there whole or not at all, whatever becomes of the process or the machine."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any


@contextlib.contextmanager
def replacing(path: str, partial: str = '', mode: int = 0o666) -> Iterator[IO[bytes]]:
  """Opens a file that gets its name once it is complete and on disk.

  Until then, and after a failure, what was there under that name stays. A power failure leaves the one
  or the other.

  Args:
    path: of the file; its directory exists.
    partial: its name until then; by default the path and '.tmp'. In the same file system.
    mode: its permissions, from which the umask takes some away.

  Raises:
    OSError: if it cannot be written.
  """
  partial = partial or path + '.tmp'
  with contextlib.suppress(FileNotFoundError):
    os.remove(partial)  # Of a process that was killed; it may have other permissions.
  try:
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), 'wb') as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(partial, path)
  except BaseException:
    with contextlib.suppress(OSError):
      os.remove(partial)  # On a full disk the room is needed.
    raise
  sync_directory(os.path.dirname(path))


def write_json(path: str, values: Mapping[str, Any], mode: int = 0o666) -> None:
  """Writes a JSON file by `replacing`."""
  with replacing(path, mode=mode) as file:
    file.write(json.dumps(values, indent=2).encode())


def sync(path: str) -> None:
  """Returns once a file's content is on disk."""
  _sync(path, os.O_RDONLY)


def sync_directory(path: str) -> None:
  """Returns once the names in a directory are on disk."""
  _sync(path or '.', os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
  handle = os.open(path, flags)
  try:
    os.fsync(handle)
  finally:
    os.close(handle)
