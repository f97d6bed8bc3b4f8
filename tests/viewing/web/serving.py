"""Starts watch.py --web as a user does."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys

from tests.waiting import DEADLINE

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
RECORDED = ROOT / 'tests' / 'viewing' / 'recorded'
RUNS = [RECORDED / name for name in ('slow_environment', 'slow_learner', 'starved_inference')]


@contextlib.contextmanager
def serve(*arguments):
  """Yields the address that the command prints last."""
  process = subprocess.Popen(
    [sys.executable, 'watch.py', *map(str, arguments), '--web'],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env=os.environ | {'PYTHONUNBUFFERED': '1'},
  )
  try:
    for line in process.stdout:
      if re.match(r'http://\S+\n', line):
        yield line.strip()
        break
    else:
      raise AssertionError(process.stderr.read())
  finally:
    process.terminate()
    process.communicate(timeout=DEADLINE)
