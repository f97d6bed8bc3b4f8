"""The versions of what a run uses: Python, packages, and the commit of this repository."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Mapping

_PACKAGES = (
  *('protobuf', 'dm-acme', 'dm-env'),
  *('jax', 'jaxlib', 'optax', 'flax', 'mctx', 'numpy'),
  *('ale-py', 'bsuite', 'dm-control', 'gymnasium', 'gymnax', 'minatar', 'mujoco', 'pgx'),
)
# What is not installed as a package here, by the lock that it is installed from.
_BY_LOCK = {'dm-launchpad': 'requirements-launchpad.txt', 'dm-reverb': 'requirements-replay.txt'}
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_GIT_SECONDS = 60


def found() -> dict[str, str]:
  """Returns versions by name; 'launchpod' is the commit, with + for a changed working tree."""
  versions = {'python': sys.version.split()[0]}
  for name in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions[name] = importlib.metadata.version(name)
  for name, lock in _BY_LOCK.items():
    if name in (pins := _pins(os.path.join(_ROOT, lock))):
      versions[name] = pins[name]
  commit, modified = code(_ROOT)
  if commit:
    versions['launchpod'] = commit + '+' * bool(modified)
  return versions


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
  """Returns what has changed, in words; a version that was not recorded has not."""
  names = sorted(name for name, version in before.items() if now.get(name) != version)
  return ', '.join(f'{name} {now.get(name, "none")} (was {before[name]})' for name in names)


def unlike_the_lock(path: str = os.path.join(_ROOT, 'requirements.txt')) -> str:
  """Returns one sentence if packages have other versions than a lock; '' otherwise, or without one.

  Args:
    path: of the lock.
  """
  locked, now = _pins(path), {}
  for name in locked.keys() & set(_PACKAGES):
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      now[name] = importlib.metadata.version(name)
  others = [f'{n} {now[n]} (not {locked[n]})' for n in sorted(now) if now[n] != locked[n]]
  if not others:
    return ''
  return (
    f'{", ".join(others)}: these are not the versions of requirements.txt, and nodes may fail; '
    '`make add PACKAGES=...` puts them back, and installs what you add beside them.'
  )


def _pins(path: str) -> dict[str, str]:
  """Returns the versions of a lock by name; {} without one."""
  try:
    with open(path) as f:
      return dict(re.findall(r'(?m)^([\w.-]+)==([\w.!+-]+)', f.read()))
  except FileNotFoundError:
    return {}


def code(root: str, generated: str = '') -> tuple[str, bool | None]:
  """Returns the commit of a working tree and whether it is modified; '' and None without git.

  Args:
    root: the working tree.
    generated: a directory whose changes do not count.
  """
  commit = _git(root, 'rev-parse', 'HEAD')
  inside = os.path.relpath(generated or root, root)
  others = [] if inside.startswith('.') else [f':(exclude){inside}']
  changed = _git(root, 'status', '--porcelain', '--', '.', *others)
  return (commit or '').strip(), None if changed is None else bool(changed)


def _git(root: str, *arguments: str) -> str | None:
  try:
    return subprocess.run(
      ['git', '-C', root, *arguments],
      capture_output=True,
      text=True,
      check=True,
      timeout=_GIT_SECONDS,
    ).stdout
  except (OSError, subprocess.SubprocessError):
    return None
