"""Pickles a node's function, and names the part that cannot be pickled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from environments import crossing

_DEPTH = 6


def dumps(name: str, function: Callable[[], object]) -> bytes:
  """Pickles a node's function.

  Args:
    name: name of the node, for the message.
    function: a bound method of a Launchpad node.

  Raises:
    ValueError: one sentence that names the node and the argument or attribute to change.
  """
  try:
    return crossing.dumps(function)
  except Exception as error:
    path, value = culprit(function, _is_unpicklable) or ('', function)
    where = f'{path}, of type {type(value).__name__},' if path else 'something in it'
    raise ValueError(
      f'node {name} cannot be sent to a separate process, because {where} cannot be pickled '
      f'({error}); make it in the node instead, in its constructor or in run().'
    ) from error


def culprit(
  function: Callable[[], object], is_bad: Callable[[Any], bool]
) -> tuple[str, Any] | None:
  """Returns the innermost part of a node that is bad for pickling, after its path; None if none is.

  Args:
    function: a bound method of a Launchpad node.
    is_bad: says so of a part, and of whatever it is in.
  """
  return _culprit(_arguments(getattr(function, '__self__', None)), is_bad, _DEPTH)


def _is_unpicklable(value: Any) -> bool:
  try:
    crossing.dumps(value)
  except Exception:
    return True
  return False


def _arguments(node: Any) -> Iterator[tuple[str, Any]]:
  """Yields the arguments of a Launchpad node, under the names that its author used."""
  for inner in getattr(node, 'nodes', ()):  # Of a colocation.
    for path, value in _arguments(inner):
      yield f'in its {type(inner).__name__}, {path}', value
  constructor = getattr(node, '_constructor', None)
  function = getattr(node, '_function', None)
  if constructor is not None:
    yield 'its constructor', constructor
  elif getattr(function, '__self__', None) is not node:
    yield 'its function', function
  for i, value in enumerate((*getattr(node, '_args', ()), *getattr(node, '_func_args', ()))):
    yield f'argument {i}', value
  named = getattr(node, '_kwargs', {}) | getattr(node, '_func_kwargs', {})
  for name, value in named.items():
    yield f'argument {name!r}', value
  if factory := getattr(node, '_priority_tables_fn', None):
    yield 'its factory of tables', factory


def _culprit(
  parts: Iterator[tuple[str, Any]], is_bad: Callable[[Any], bool], depth: int
) -> tuple[str, Any] | None:
  for path, value in parts:
    if is_bad(value):
      return (depth and _culprit(_parts(path, value), is_bad, depth - 1)) or (path, value)
  return None


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
  if isinstance(value, functools.partial):
    yield f'{path}.func', value.func
    yield from ((f'{path}.args[{i}]', part) for i, part in enumerate(value.args))
    yield from ((f'{path}.keywords[{name!r}]', part) for name, part in value.keywords.items())
  elif isinstance(value, Mapping):
    yield from ((f'{path}[{key!r}]', part) for key, part in value.items())
  elif isinstance(value, (list, tuple)):
    yield from ((f'{path}[{i}]', part) for i, part in enumerate(value))
  else:
    names = (*getattr(value, '__dict__', ()), *getattr(type(value), '__slots__', ()))
    yield from ((f'{path}.{n}', getattr(value, n)) for n in names if hasattr(value, n))
