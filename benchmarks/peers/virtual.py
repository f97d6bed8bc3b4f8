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
# Directories by peer, on PYTHONPATH while its package is built.
BUILDS = LISTS / 'builds'


def pins(text: str) -> dict[str, str]:
  """Returns the pinned versions in a list of requirements, by package."""
  return dict(re.findall(r'^([\w.-]+)==(\S+)', text, re.MULTILINE))


def requirements(peer: str) -> pathlib.Path:
  """Returns the path of a peer's list of requirements."""
  return LISTS / f'{peer}.txt'


def python(peer: str) -> str:
  """Returns the path of a peer's interpreter, which need not exist yet."""
  return str(DIRECTORY / peer / '.venv' / 'bin' / 'python')


def install(peer: str, version: str, wheels: str, built: str = '') -> None:
  """Makes a peer's environment, unless it exists with the current versions of its list.

  Args:
    peer: name of the list and the directory.
    version: Python version, such as '3.11'.
    wheels: a directory with a CPU build of PyTorch; if empty, uv uses PyTorch's own index.
    built: package of the list that is built with the others, once they are installed; '' for none.

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
  pip = ['pip', 'install', '--quiet', '--no-deps', '--python', python(peer)]
  lines = pinned.read_text().splitlines(keepends=True)
  ready = ''.join(line for line in lines if not (built and line.startswith(f'{built}==')))
  _uv(peer, ['venv', '--quiet', '--clear', '--python', interpreter, str(directory)])
  _uv(peer, [*pip, *torch, '--requirement', '-'], ready)
  if built:
    package = f'{built}=={pins(pinned.read_text())[built]}'
    _uv(peer, [*pip, '--no-build-isolation', package], PYTHONPATH=str(BUILDS / peer))
  installed.write_text(pinned.read_text())


def _uv(peer: str, arguments: list[str], given: str = '', **variables: str) -> None:
  # Not in this directory, where uv would read our own overrides of versions.
  done = subprocess.run(
    [os.path.join(os.path.dirname(sys.executable), 'uv'), *arguments],
    cwd='/',
    env=os.environ | variables,
    input=given,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )
  if done.returncode:
    raise ValueError(
      f'cannot install {peer}, leave it out of --systems or see --wheels; uv says: '
      f'{done.stderr.strip()}'
    )
