"""Other Python interpreters, with packages of their own, that run parts of a program.

Such an interpreter imports from the checkout, from the user's own entries of PYTHONPATH, and from its
own packages. Launchpad and Acme are the exceptions: it uses the files of this environment. Both are
Python alone, no release of Launchpad installs on Python 3.11 or later, and what one process pickles the
other must know.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (3, 10)
# What the processes of a group with an interpreter of its own need; see docs/extending.md.
REQUIREMENTS = os.path.join(ROOT, 'requirements-actor.in')
_HANDED_ON = 'acme', 'launchpad'
_STAND_INS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'handed_on')
# The directories of these packages, for the modules in `handed_on`.
_VARIABLE = 'LAUNCHPOD_HANDED_ON'
# The packages of `REQUIREMENTS`, by the names under which they are imported.
REQUIRED = frozenset(
  ('absl', 'cloudpickle', 'dm_env', 'msgpack', 'numpy', 'PIL', 'portpicker', 'psutil')
  + ('termcolor', 'tree')
)
# Runs under Pythons that are too old for anything else here.
_PROBE = """
import json, sys
sys.path[:] = filter(None, sys.path)
found = {"version": sys.version_info[:2], "module": "", "missing": "", "error": "", "pip": False}
if sys.version_info >= (3, 10):
  import importlib, importlib.util
  found["pip"] = importlib.util.find_spec("pip") is not None
  for module in sys.argv[1:]:
    try:
      importlib.import_module(module)
    except BaseException as error:
      missing = getattr(error, "name", None) or "" if isinstance(error, ModuleNotFoundError) else ""
      found.update(module=module, missing=missing, error="%s: %s" % (type(error).__name__, error))
      break
print("\\n" + json.dumps(found))
"""


class Probe(NamedTuple):
  """What an interpreter can run.

  Attributes:
    version: its major and minor version.
    problem: what keeps it from running its part, and what to do about it; one sentence without the full
      stop, of which the interpreter is the subject. Empty if nothing does.
    module: the module that it cannot import; empty for every other problem.
  """

  version: tuple[int, int]
  problem: str = ''
  module: str = ''


def absolute(python: str) -> str:
  """Returns the absolute path of an interpreter; links are kept, since they lead to its packages."""
  return os.path.abspath(os.path.expanduser(python)) if python else ''


def variables() -> dict[str, str]:
  """Returns the environment variables by which another interpreter finds code of ours and the user's."""
  packages = [
    place
    for name in _HANDED_ON
    if (spec := importlib.util.find_spec(name))
    for place in spec.submodule_search_locations or ()
  ]
  # An empty PYTHONHOME counts as none. A value would be this interpreter's.
  home = {'PYTHONHOME': ''} if 'PYTHONHOME' in os.environ else {}
  return {
    **home,
    'PYTHONPATH': os.pathsep.join([*_path(), _STAND_INS]),
    _VARIABLE: os.pathsep.join(packages),
  }


def _path() -> Iterator[str]:
  """Yields the entries of the import path that do not belong to this interpreter, the checkout first."""
  named = {sysconfig.get_path(n) for n in ('stdlib', 'platstdlib', 'purelib', 'platlib')}
  named |= {*site.getsitepackages(), site.getusersitepackages()}
  own = tuple(path + os.sep for path in named if path)
  archive = 'python{}{}.zip'.format(*sys.version_info[:2])
  yield ROOT
  for entry in dict.fromkeys(os.path.abspath(entry) for entry in sys.path):
    ours = (entry + os.sep).startswith(own) or os.path.basename(entry) == archive
    if not ours and entry not in (ROOT, _STAND_INS):
      yield entry


def load_handed_on(name: str) -> None:
  """Replaces a module of `handed_on`, which is being imported, by the package that it stands for.

  Raises:
    ModuleNotFoundError: the launcher has not said where the package is.
  """
  places = os.environ.get(_VARIABLE, '').split(os.pathsep)
  place = next((place for place in places if os.path.basename(place) == name), None)
  if place is None:
    raise ModuleNotFoundError(f'No module named {name!r}', name=name)
  spec = importlib.util.spec_from_file_location(
    name, os.path.join(place, '__init__.py'), submodule_search_locations=[place]
  )
  assert spec is not None and spec.loader is not None
  sys.modules[name] = package = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(package)


@functools.cache
def probe(python: str, modules: tuple[str, ...]) -> Probe:
  """Tries an interpreter in one process.

  Args:
    python: its absolute path.
    modules: of the checkout, which it has to import.
  """
  if problem := _unusable(python):
    return Probe((0, 0), problem)
  try:
    done = subprocess.run(
      [python, '-c', _PROBE, *modules],
      env={**os.environ, **variables()},
      stdin=subprocess.DEVNULL,
      capture_output=True,
      text=True,
      errors='replace',
    )
    found = json.loads(done.stdout.strip().rpartition('\n')[2])
    major, minor = found['version']
  except OSError as error:
    return Probe((0, 0), f'cannot be run ({error.strerror}); name a Python interpreter')
  except (ValueError, KeyError, TypeError):
    said = (done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1]
    return Probe((0, 0), f'does not run as a Python interpreter ({said})')
  version = (major, minor)
  if version < OLDEST:
    return Probe(
      version,
      f'is Python {major}.{minor}, and nodes need Python {OLDEST[0]}.{OLDEST[1]} or later; make its '
      'environment with a newer one',
    )
  if not found['error']:
    return Probe(version)
  missing = found['missing'].partition('.')[0]
  if not missing:
    return Probe(version, f'cannot import {found["module"]} ({found["error"]})', found['module'])
  install = f'{python} -m pip install' if found['pip'] else f'uv pip install --python {python}'
  what = f'-r {REQUIREMENTS}' if missing in REQUIRED else missing
  return Probe(
    version,
    f'has no package {missing}, which {found["module"]} needs; install it with: {install} {what}',
    found['module'],
  )


def _unusable(python: str) -> str:
  if os.path.isdir(python):
    return 'is a directory; name the interpreter in it, such as bin/python'
  if not os.path.exists(python):
    return 'does not exist'
  return '' if os.access(python, os.X_OK) else 'is not executable; name a Python interpreter'
