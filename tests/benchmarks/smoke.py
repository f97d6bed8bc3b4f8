"""Runs a benchmark as a user does, at its smallest."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.programs_under_test import ENVIRONMENT
from tests.waiting import DEADLINE

SMALL = ('--env=catch', '--envs_per_actor=8', '--batch_size=4')


def command(benchmark, *flags, deadline=DEADLINE):
  """Runs `python -m benchmarks.BENCHMARK FLAGS`; returns the finished process."""
  process = subprocess.Popen(
    [sys.executable, '-m', f'benchmarks.{benchmark}', *flags],
    env={
      **os.environ,
      'PYTHONPATH': os.pathsep.join(p for p in sys.path if p),
      **ENVIRONMENT,
    },
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  try:
    output, errors = process.communicate(timeout=deadline)
  except BaseException:
    process.terminate()  # It ends the program that it has launched.
    process.communicate()
    raise
  return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def run(benchmark, directory, name, *flags):
  """Runs a benchmark; returns the lines that it printed, and the record called `name`.

  Fails the test, with what it wrote, if it exits non-zero or leaves no picture.
  """
  process = command(benchmark, *flags, f'--results={directory}')
  assert process.returncode == 0, process.stdout + process.stderr
  assert (directory / f'{name}.png').read_bytes().startswith(b'\x89PNG')
  return process.stdout.splitlines(), json.loads((directory / f'{name}.json').read_text())
