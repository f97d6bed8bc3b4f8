"""Standard streams of launch.py."""

import os
import subprocess
import sys
import threading

import pytest

from launchers import streams
from tests.programs_under_test import ROOT
from tests.terminals import FORBIDDEN, HOSTILE, printed_on_terminal
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


@pytest.mark.parametrize(
  'command',
  [
    ['launch.py', '--dry_run', f'--env={HOSTILE}'],
    ['launch.py', f'--program={HOSTILE}.py:make'],
    ['launch.py', '--dry_run', f'--no_such_{HOSTILE}=1'],
    ['watch.py', HOSTILE],
    ['evaluate.py', HOSTILE],
    ['sweep.py', f'{HOSTILE}.yaml'],
    ['-c', f'import launchers.streams as s; s.ensure_streams(); raise ValueError({HOSTILE!r})'],
  ],
)
def test_no_name_that_an_error_quotes_controls_the_terminal(command):
  code, printed = printed_on_terminal(*command)
  assert code and not [each for each in FORBIDDEN if each in printed], printed
  assert b'pwned' in printed, printed


def test_printed_text_keeps_its_lines_and_columns_and_loses_its_colours():
  assert streams.printable('a\tb\nc \u00e9') == 'a\tb\nc \u00e9'
  assert streams.printable('\x1b[1;31mred\x1b[m\x1b[K\x00\r\n') == 'red\\x1b[K\\x00\n'
  assert streams.printable('10 s\r 9 s\r') == '10 s\n 9 s\n'
