"""Fresh interpreters, for what must be known of a process as a whole."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(*arguments, **environment):
  """Runs `python ARGUMENTS` where this repository can be imported; returns stdout.

  JAX compiles with few optimizations, as in pytest's own process.
  Fails the test, with what the process wrote, if it exits non-zero.
  """
  process = subprocess.run(
    [sys.executable, *arguments],
    env={
      **os.environ,
      'PYTHONPATH': os.pathsep.join(p for p in sys.path if p),
      'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
      **environment,
    },
    capture_output=True,
    text=True,
  )
  assert process.returncode == 0, process.stderr
  return process.stdout
