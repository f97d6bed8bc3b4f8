"""The rows of a list of results: all of them, checked, and those that names select."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from benchmarks.results.declared import Entry, Task
from environments import errors


def entries(tasks: Sequence[Task]) -> list[Entry]:
  """Returns all rows in their order.

  Raises:
    ValueError: a declaration is invalid, or a name occurs twice; one sentence.
  """
  found = [Entry(task, row) for task in tasks for row in task.rows]
  names = [task.name for task in tasks] + [entry.name for entry in found]
  for task in tasks:
    task.check()
  for name in names:
    if names.count(name) > 1:
      raise ValueError(f'the rows have {name} twice; rename one.')
  for entry in found:
    try:
      entry.row.check()
    except ValueError as error:
      raise ValueError(f'{entry.task.name}: {error}') from error
    for flag, row in getattr(entry.row, 'inputs', {}).items():
      if row not in entry.task.rows:
        raise ValueError(
          f'{entry.name} reads the run of {row.label} by --{flag}; add that row to {entry.task.name}.'
        )
  return found


def select(found: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
  """Returns the rows that any of the names selects, in their order; all rows without names.

  Args:
    found: all rows.
    names: globs of rows, tasks or groups: 'pong', 'minatar', 'minatar/*', '*/anakin'.

  Raises:
    ValueError: a name selects no row; one sentence.
  """
  for name in names:
    if not any(_matches(entry, name) for entry in found):
      known = sorted({part for entry in found for part in _ancestors(entry)})
      raise ValueError(f'{name!r} names no row{errors.did_you_mean(name, known)}; see --list.')
  return [e for e in found if not names or any(_matches(e, name) for name in names)]


def _ancestors(entry: Entry) -> list[str]:
  parts = entry.name.split('/')
  return ['/'.join(parts[:end]) for end in range(1, len(parts) + 1)]


def _matches(entry: Entry, name: str) -> bool:
  return any(fnmatch.fnmatchcase(part, name) for part in _ancestors(entry))
