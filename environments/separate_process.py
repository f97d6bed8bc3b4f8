"""Checks in a separate process, for what the launcher must not import.

The process exits with `REFUSED` if the check refuses a flag, and its last line on stderr says why.

A check may import JAX, which takes seconds. To enter a network namespace launch.py executes its command
again, in the same process. An environment variable carries over what its checks have printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

REFUSED = 2
_LARGEST = 64 << 10  # Linux limits a variable to 128 KiB; a check that is left out is repeated.
_PRINTED = 'LAUNCHPOD_CHECKS'  # JSON: process id, stdout of each check by its input.


def run(module: str, *arguments: str, flag: str, stdin: bytes = b'') -> str:
  """Runs `python -m MODULE ARGUMENTS` without accelerators; returns its stdout.

  Args:
    module: of this repository; it ends with the exit code of `exit_code`.
    *arguments: of the command line.
    flag: names what is checked, for the error.
    stdin: input of the process.

  Raises:
    ValueError: the check refuses the flag; one sentence.
    RuntimeError: the process failed otherwise; its last line is that of the process.
  """
  asked = ' '.join([module, *arguments, hashlib.sha256(stdin).hexdigest()])
  if asked in _BEFORE:
    return _BEFORE[asked]
  process = subprocess.run(
    [sys.executable, '-m', module, *arguments],
    cwd=pathlib.Path(__file__).parent.parent,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    input=stdin,
    capture_output=True,
  )
  said = process.stderr.decode(errors='replace').strip()
  if process.returncode == REFUSED:
    raise ValueError(said.splitlines()[-1])
  if process.returncode:
    raise RuntimeError(f'{flag} cannot be tried:\n{said}')
  printed = process.stdout.decode()
  carried = json.dumps([os.getpid(), _printed() | {asked: printed}])
  if len(carried) <= _LARGEST:
    os.environ[_PRINTED] = carried
  return printed


def _printed() -> dict[str, str]:
  """Returns what the checks of this process have printed, by what was asked."""
  pid, printed = json.loads(os.environ.get(_PRINTED, '[0, {}]'))
  return printed if pid == os.getpid() else {}


# Of the command's first execution, if this is the second.
_BEFORE = _printed()


def exit_code(check: Callable[[], None]) -> int:
  """Calls `check` in the separate process and returns the exit code; a ValueError refuses."""
  try:
    check()
  except ValueError as error:
    print(error, file=sys.stderr)
    return REFUSED
  return 0
