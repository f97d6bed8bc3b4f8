"""Commands on a terminal of their own."""

import os
import subprocess
import sys

from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE

# Sets the title, sets the clipboard, clears the screen and turns red, in two encodings; rings.
HOSTILE = '\x1b]0;pwned\x07\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b31m\x1b[31mred\x08'
# What of it no terminal may receive. Our own tables have colours.
FORBIDDEN = (b'\x1b]', b'\x07', b'\x1b[2J', '\x9b'.encode(), b'\x1b[31m', b'\x08')


def printed_on_terminal(*command, deadline=DEADLINE):
  """Returns the exit code of a Python command, and the bytes that its terminal of 80 x 24 receives."""
  leader, follower = os.openpty()
  process = subprocess.Popen(
    ['timeout', str(deadline), sys.executable, *command],
    cwd=ROOT,
    stdin=follower,
    stdout=follower,
    stderr=follower,
    start_new_session=True,
    env={**os.environ, 'TERM': 'xterm-256color', 'COLUMNS': '80', 'LINES': '24'},
  )
  os.close(follower)
  printed = b''
  try:
    while block := os.read(leader, 1 << 16):
      printed += block
  except OSError:  # The terminal is closed.
    pass
  finally:
    os.close(leader)
  return process.wait(), printed
