"""Modules of a user that cannot be imported, because a package of ours has their name.

Every process finds our packages before PYTHONPATH and the directory of a user's file.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Iterator

_ROOT = pathlib.Path(__file__).resolve().parent.parent
# Many projects have such folders, and few import them.
_RARELY_IMPORTED = {'benchmarks', 'examples', 'tests'}


def warnings(files: Iterable[str]) -> Iterator[str]:
  """Yields a sentence for each directory with hidden modules.

  Args:
    files: absolute paths of the user's files; directories of PYTHONPATH are looked into as well.
  """
  for directory, where in _places(files).items():
    if names := _hidden(directory) - _RARELY_IMPORTED:
      yield (
        f'{", ".join(sorted(names))}, {where}, cannot be imported, because Launchpod has packages of '
        'the same name; rename what your code imports.'
      )


def explain(error: BaseException | None, *files: str) -> str:
  """Returns the part of a sentence that says which module is hidden, if that caused an error; else ''.

  Args:
    error: what importing a user's module raised.
    *files: as for `warnings`.
  """
  name = (error.name or '').partition('.')[0] if isinstance(error, ImportError) else ''
  for directory, where in _places(files).items():
    if name in _hidden(directory):
      return f'; {name}, {where}, is hidden by the package of Launchpod with this name: rename it'
  return ''


def _places(files: Iterable[str]) -> dict[str, str]:
  places = {os.path.dirname(file): f'beside {os.path.basename(file)}' for file in files}
  for place in filter(None, os.environ.get('PYTHONPATH', '').split(os.pathsep)):
    places.setdefault(os.path.abspath(place), f'in {place} of PYTHONPATH')
  return places


def _hidden(directory: str) -> set[str]:
  place = pathlib.Path(directory)
  ours = {path.parent.name for path in _ROOT.glob('*/__init__.py')}
  if place.resolve() == _ROOT:
    return set()
  return {
    name for name in ours if (place / f'{name}.py').exists() or any((place / name).glob('*.py'))
  }
