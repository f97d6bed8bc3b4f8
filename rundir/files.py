"""Atomic file writes that survive a crash of the process or the machine."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
  """Returns whether a write failed because the disk or a quota is full."""
  return error.errno in _FULL


def own_partial(path: str) -> str:
  """Returns a temporary path for `replacing` that no other process has, on any machine."""
  return f'{path}.{os.uname().nodename}-{os.getpid()}.tmp'


@contextlib.contextmanager
def replacing(path: str, partial: str = '', mode: int = 0o666) -> Iterator[IO[bytes]]:
  """Opens a file that gets its name once it is complete and on disk.

  Until then, and after a failure, an existing file of that name stays unchanged. A power failure leaves
  either the old or the new file.

  Args:
    path: of the file; its directory must exist.
    partial: temporary path in the same file system; `path + '.tmp'` by default.
    mode: its permissions before the umask.

  Raises:
    OSError: if it cannot be written; `filename` is set.
  """
  partial = partial or path + '.tmp'
  with contextlib.suppress(FileNotFoundError):
    os.remove(partial)  # Left by a killed process, perhaps with other permissions.
  try:
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), 'wb') as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(partial, path)
  except BaseException as error:
    with contextlib.suppress(OSError):
      os.remove(partial)  # Frees room on a full disk.
    if isinstance(error, OSError) and error.filename is None:  # A full disk names no file.
      error.filename = path
    raise
  sync_directory(os.path.dirname(path))


@contextlib.contextmanager
def reported(unnamed: str = 'a file') -> Iterator[None]:
  """Raises an OSError as a ValueError, one sentence. A broken pipe stays what it is.

  Args:
    unnamed: what cannot be written if the error names no file.
  """
  try:
    yield
  except BrokenPipeError:
    raise
  except OSError as error:
    what = error.filename or unnamed
    raise ValueError(f'{what} cannot be written: {error.strerror}.') from error


def write(path: str, content: bytes) -> None:
  """Writes a file atomically with `replacing`; makes its directory if there is none."""
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with replacing(path) as file:
    file.write(content)


def write_json(path: str, values: Mapping[str, Any], mode: int = 0o666) -> None:
  """Writes a JSON file atomically with `replacing`."""
  with replacing(path, mode=mode) as file:
    file.write(json.dumps(values, indent=2).encode())


def sync(path: str) -> None:
  """Waits until a file's content is on disk."""
  _sync(path, os.O_RDONLY)


def sync_directory(path: str) -> None:
  """Waits until a directory's entries are on disk."""
  _sync(path or '.', os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
  handle = os.open(path, flags)
  try:
    os.fsync(handle)
  finally:
    os.close(handle)
