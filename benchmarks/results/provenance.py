"""Where a run comes from: the version of the code, the machine, and how busy it was."""

from __future__ import annotations

import os
import platform
import subprocess
from typing import Any

import psutil

from benchmarks.output import cores
from rundir import versions

_NVIDIA_SECONDS = 60


def code(root: str, generated: str = '') -> dict[str, Any]:
  """Returns the `commit` of a working tree and whether it was `modified`; '' and None without git.

  Args:
    root: the working tree.
    generated: a directory whose changes do not count, since results are written there.
  """
  commit, modified = versions.code(root, generated)
  return {'commit': commit, 'modified': modified}


def machine() -> dict[str, Any]:
  """Returns the properties of this machine that affect results, without its name."""
  return {
    'cpu': _cpu(),
    'cpu_cores': cores(),
    'memory_gib': round(psutil.virtual_memory().total / 2**30),
    'accelerators': _accelerators(),
  }


def load() -> float:
  """Returns the load average of the last minute."""
  return round(os.getloadavg()[0], 2)


def _cpu() -> str:
  try:
    with open('/proc/cpuinfo') as f:
      names = [line.partition(':')[2].strip() for line in f if line.startswith('model name')]
  except OSError:
    names = []
  return names[0] if names else platform.machine()


def _accelerators() -> list[str]:
  """Returns the names of NVIDIA's devices; [] without its tools."""
  command = ['nvidia-smi', '--query-gpu=name', '--format=csv,noheader']
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_NVIDIA_SECONDS)
  except (OSError, subprocess.SubprocessError):
    return []
  return [line.strip() for line in done.stdout.splitlines() if line.strip()] * (not done.returncode)
