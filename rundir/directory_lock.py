"""The lock of a directory that one command at a time may use: that of a run, a sweep or a benchmark."""

from __future__ import annotations

import fcntl
import os
import time

FILE = '.lock'
_PATIENCE_SECONDS = 0.2  # `is_taken` in another process holds the lock for a moment.


def take(path: str) -> None:
  """Locks the directory until this process exits; raises BlockingIOError if another holds the lock."""
  lock = os.open(os.path.join(path, FILE), os.O_RDWR | os.O_CREAT, 0o644)
  end = time.monotonic() + _PATIENCE_SECONDS
  while True:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return
    except BlockingIOError:
      if time.monotonic() > end:
        os.close(lock)
        raise
      time.sleep(0.02)


def is_taken(path: str) -> bool:
  """Returns whether a launcher on this machine, or one that shares its locks, uses a directory."""
  try:
    with open(os.path.join(path, FILE)) as lock:
      fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Closing releases it.
  except BlockingIOError:
    return True
  except OSError:
    return False
  return False
