"""Limits the freed memory that glibc keeps in a node's process."""

from __future__ import annotations

import ctypes
import os

ARENAS = 4
_M_ARENA_MAX = -8


def limit_arenas() -> None:
  """Limits the arenas of glibc's malloc in this process to `ARENAS`.

  Call it before any thread starts: existing arenas stay. It does nothing if the environment sets the
  limit (MALLOC_ARENA_MAX or GLIBC_TUNABLES), or without glibc.

  By default glibc makes 8 arenas per core. Each keeps up to 64 MiB of freed memory, which `malloc_trim`
  does not return either. With more threads than arenas, every new thread takes the next arena in turn.
  The short-lived threads that write checkpoints would then fill all arenas one after the other.
  """
  chosen = 'glibc.malloc.arena_max' in os.environ.get('GLIBC_TUNABLES', '')
  mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
  if mallopt is not None and not chosen and 'MALLOC_ARENA_MAX' not in os.environ:
    mallopt(_M_ARENA_MAX, ARENAS)
