"""How much memory that a node has freed stays with its process."""

from __future__ import annotations

import ctypes
import os

ARENAS = 4
_M_ARENA_MAX = -8


def limit_arenas() -> None:
  """Limits the arenas of glibc's malloc in this process to `ARENAS`.

  Call it before there are threads: arenas that exist stay. It does nothing where the environment sets
  the limit (MALLOC_ARENA_MAX or GLIBC_TUNABLES), or where there is no glibc.

  glibc makes 8 arenas for each core. Each keeps up to 64 MiB of freed memory, which `malloc_trim` does
  not return either. Where more threads live than there are arenas, every new thread takes the next
  arena in turn. So the short threads that write checkpoints would fill all of them, one after the other.
  """
  chosen = 'glibc.malloc.arena_max' in os.environ.get('GLIBC_TUNABLES', '')
  mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
  if mallopt is not None and not chosen and 'MALLOC_ARENA_MAX' not in os.environ:
    mallopt(_M_ARENA_MAX, ARENAS)
