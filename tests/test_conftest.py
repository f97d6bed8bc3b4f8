"""The process of pytest itself."""

import subprocess
import sys

import pytest

from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE

_TESTS = """
import os, signal, subprocess, sys
from tests import conftest
conftest.have_children_obey_signals()
number = signal.Signals[sys.argv[1]]
os.kill(os.getpid(), number)
print(-subprocess.run(['sh', '-c', f'kill -{int(number)} $$; sleep 60']).returncode == number)
"""


@pytest.mark.parametrize('name', ['SIGINT', 'SIGTERM', 'SIGHUP'])
def test_programs_of_tests_obey_signals_that_their_shell_ignores(name):
  process = subprocess.run(
    ['sh', '-c', f'trap "" INT TERM HUP; exec "{sys.executable}" -c "$0" "$1"', _TESTS, name],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )
  assert process.stdout == 'True\n', process.stderr
