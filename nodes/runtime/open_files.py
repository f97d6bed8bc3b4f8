"""This process's limit of open files, which counts connections and mappings of shared memory."""

from __future__ import annotations

import contextlib
import os
import resource

_OPEN_FILES = 1 << 16


def limit() -> int:
  """Returns how many files and connections this process may have open; -1 for any number."""
  return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def left() -> float:
  """Returns how many more it may open."""
  allowed = limit()
  if allowed == resource.RLIM_INFINITY:
    return float('inf')
  return allowed - len(os.listdir('/proc/self/fd'))


def allow_many() -> None:
  """Raises the soft limit, often 1,024, as far as the hard limit allows."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  if 0 <= soft < _OPEN_FILES:
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    with contextlib.suppress(ValueError, OSError):
      resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
