"""An environment of another Python on this machine, as docs/extending.md says to make one."""

import fcntl
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from environments import interpreters


def _interpreters():
  """Yields the interpreters of other versions that nodes can run in; those with most wheels first."""
  for minor in (12, 11, 13, 10, 14):
    if (3, minor) != sys.version_info[:2]:
      if found := shutil.which(f'python3.{minor}'):
        yield found
      yield from map(
        str, sorted((pathlib.Path.home() / '.pyenv/versions').glob(f'3.{minor}.*/bin/python'))
      )


def build(directory, *packages):
  """Returns the interpreter of an environment with what nodes need, and some packages more.

  The workers of a pytest session share it. The test is skipped if there is no other Python, or packages
  cannot be installed.

  Args:
    directory: of the environment; made if it does not exist.
    *packages: to install as well.
  """
  python, failure = directory / 'bin' / 'python', directory.with_suffix('.failed')
  with open(directory.with_suffix('.lock'), 'w') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not python.exists() and not failure.exists():
      failed = 'there is no Python from 3.10 on here besides the one that runs the tests'
      for base in _interpreters():
        uv = shutil.which('uv', path=str(pathlib.Path(sys.executable).parent)) or 'uv'
        words = ['-r', interpreters.REQUIREMENTS, *packages]
        for command in ([uv, 'venv', '--python', base, directory], [uv, 'pip', 'install', *words]):
          done = subprocess.run(
            [*command, *(['--python', python] if 'pip' in command else [])],
            capture_output=True,
            text=True,
          )
          failed = done.returncode and re.sub(r'\s+', ' ', done.stderr)
          if failed:
            break
        if not failed:
          break
        shutil.rmtree(directory, ignore_errors=True)
      if failed:
        failure.write_text(failed)
  if failure.exists():
    pytest.skip(failure.read_text())
  return str(python)
