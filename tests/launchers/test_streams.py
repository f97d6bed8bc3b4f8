"""Standard streams of launch.py."""

import os
import subprocess
import sys

from tests.programs_under_test import ROOT

_SAY = """
import sys
from launchers import streams
streams.ensure_streams()
streams.say('caf\\u00e9 \\u2192', sys.stderr)
print('\\u2192', flush=True)
"""


def test_characters_that_a_terminal_lacks_are_escaped():
  process = subprocess.run(
    [sys.executable, '-c', _SAY],
    cwd=ROOT,
    env={**os.environ, 'PYTHONIOENCODING': 'latin-1:strict'},
    capture_output=True,
  )
  assert process.returncode == 0, process.stderr
  assert process.stderr == b'caf\xe9 \\u2192\n'
  assert process.stdout == b'\\u2192\n'
