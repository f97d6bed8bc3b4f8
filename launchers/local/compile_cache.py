"""The cache of compiled functions that the runs of a user share on one machine."""

from __future__ import annotations

import os
import pathlib
import platform
import zlib
from collections.abc import Mapping

from rundir import user_cache

_MAX_BYTES = 1 << 29
_PROCESSOR = '/proc/cpuinfo'


def variables(environment: Mapping[str, str]) -> dict[str, str]:
  """Returns the variables with which JAX keeps what it compiles for the next run.

  Several processes may use the directory at a time; JAX removes what was used longest ago. An entry's
  name depends on the kind of device and the versions of JAX and its plug-in, so that CPUs and different
  accelerators share a directory as well.

  Args:
    environment: the user's variables. {} is returned if one of them is about JAX's cache, or if the
      directory cannot be made.
  """
  chosen = any(
    name.startswith(('JAX_COMPILATION_CACHE', 'JAX_ENABLE_COMP')) for name in environment
  )
  if chosen:
    return {}
  directory = user_cache.path(f'xla-{_processor()}', environment)
  try:
    os.makedirs(directory, exist_ok=True)
  except OSError:
    return {}
  return {
    'JAX_COMPILATION_CACHE_DIR': directory,
    'JAX_COMPILATION_CACHE_MAX_SIZE': str(_MAX_BYTES),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.05',
  }


def _processor() -> str:
  """Returns a name of this processor's instructions, since machines may share a home directory."""
  try:
    lines = pathlib.Path(_PROCESSOR).read_text().splitlines()
  except OSError:
    lines = []
  instructions = {line for line in lines if line.startswith(('flags', 'Features', 'model name'))}
  return f'{zlib.crc32(repr((platform.machine(), sorted(instructions))).encode()):08x}'
