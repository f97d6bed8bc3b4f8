"""Checks in processes of their own."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent
# Executes itself again once, as launch.py does; each execution asks twice.
_COMMAND = """
import os, sys
from environments import separate_process
for _ in range(2):
  printed = separate_process.run('tests.environments.counted_check', sys.argv[1], flag='')
  print(printed.strip(), flush=True)
if 'AGAIN' not in os.environ:
  os.environ['AGAIN'] = ''
  os.execv(sys.executable, sys.orig_argv)
"""


def test_a_check_is_not_repeated_when_the_command_is_executed_again(tmp_path):
  command = [sys.executable, '-c', _COMMAND, str(tmp_path / 'runs')]
  first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
  assert first.stdout.split() == ['1', '2', '2', '2']
  second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
  assert second.stdout.split() == ['3', '4', '4', '4']
