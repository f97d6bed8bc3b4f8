"""The command that starts a process of ours."""

import os
import subprocess
import sys

from environments import entry

_MODULE = """
import importlib.util
import multiprocessing
import sys


def other():
  sys.exit(importlib.util.find_spec('other') is not None)


def main(argv):
  child = multiprocessing.get_context('spawn').Process(target=other)
  child.start()
  child.join()
  print(argv[1:], child.exitcode, importlib.util.find_spec('other') is not None)
"""


def test_neither_the_process_nor_its_children_import_from_the_working_directory(tmp_path):
  code, elsewhere = tmp_path / 'code', tmp_path / 'elsewhere'
  code.mkdir()
  elsewhere.mkdir()
  (code / 'mine.py').write_text(_MODULE)
  (elsewhere / 'other.py').touch()
  # A child imports it before it has the path of its parent.
  (elsewhere / 'multiprocessing.py').write_text('raise SystemExit("imported from here")')
  said = subprocess.run(
    entry.command(sys.executable, 'mine', 'a'),
    cwd=elsewhere,
    env={**os.environ, 'PYTHONPATH': str(code)},
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert said.stdout == "['a'] 0 False\n", said.stderr
