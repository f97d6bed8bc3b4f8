"""Standard streams of launch.py."""

import os
import subprocess
import sys
import threading

from launchers import streams
from tests.programs_under_test import ROOT
from tests.waiting import wait_until

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


def test_only_what_takes_long_is_announced(capsys):
  with streams.announced_if_slow('still trying', seconds=0.0):
    wait_until(lambda: 'still trying\n' in capsys.readouterr().err)
  with streams.announced_if_slow('never said', seconds=1000.0):
    pass
  wait_until(lambda: not any(isinstance(t, threading.Timer) for t in threading.enumerate()))
