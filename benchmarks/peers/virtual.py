"""Virtual environments of the peers, each made once from a list of pinned versions."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

from benchmarks.running import ROOT

DIRECTORY = ROOT / 'runs' / 'benchmarks' / 'peers'
LISTS = pathlib.Path(__file__).parent


def pins(text: str) -> dict[str, str]:
  """Returns the pinned versions in a list of requirements, by package."""
  return dict(re.findall(r'^([\w.-]+)==(\S+)', text, re.MULTILINE))


def requirements(peer: str) -> pathlib.Path:
  """Returns the path of a peer's list of requirements."""
  return LISTS / f'{peer}.txt'


def python(peer: str) -> str:
  """Returns the path of a peer's interpreter, which need not exist yet."""
  return str(DIRECTORY / peer / '.venv' / 'bin' / 'python')


def install(peer: str, version: str, wheels: str) -> None:
  """Makes a peer's environment, unless it exists with the current versions of its list.

  Args:
    peer: name of the list and the directory.
    version: Python version, such as '3.11'.
    wheels: a directory with a CPU build of PyTorch; if empty, uv uses PyTorch's own index.

  Raises:
    ValueError: the environment cannot be made; the message has uv's error.
  """
  pinned = requirements(peer)
  directory = DIRECTORY / peer / '.venv'
  installed = directory / 'installed.txt'
  if installed.exists() and installed.read_text() == pinned.read_text():
    return
  print(f'installing {peer} into {directory} (once)', flush=True)
  # PyTorch's wheels on other indexes require gigabytes of CUDA.
  torch = ['--find-links', os.path.abspath(wheels)] if wheels else ['--torch-backend', 'cpu']
  same = sys.version_info[:2] == tuple(map(int, version.split('.')))
  interpreter = sys.executable if same else version
  for arguments in (
    ['venv', '--quiet', '--clear', '--python', interpreter, str(directory)],
    ['pip', 'install', '--quiet', '--no-deps', '--python', python(peer), *torch]
    + ['--requirement', str(pinned)],
  ):
    # Not in this directory, where uv would read our own overrides of versions.
    command = [os.path.join(os.path.dirname(sys.executable), 'uv'), *arguments]
    done = subprocess.run(command, cwd='/', stderr=subprocess.PIPE, text=True)
    if done.returncode:
      raise ValueError(
        f'cannot install {peer}, leave it out of --systems or see --wheels; uv says: '
        f'{done.stderr.strip()}'
      )
  installed.write_text(pinned.read_text())
