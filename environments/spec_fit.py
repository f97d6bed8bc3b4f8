"""Whether an observation has the shapes and dtypes that its spec declares."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import tree

from environments.nests import Nest


class Fit:
  """Checks observations of one environment against a nest of specs, which costs little if they fit."""

  def __init__(self, spec: Nest):
    """Initialises for observations of a spec."""
    self._declared = tree.flatten_with_path(spec)
    self._getters = [_getter(path) for path, _ in self._declared]
    self._shapes = [tuple(leaf.shape) for _, leaf in self._declared]
    self._dtypes: list[Any] = []  # Of the leaves that have fitted last.

  def leaves(self, observation: Nest) -> list[Any]:
    """Returns the leaves of an observation in the order of the spec's; it may have others.

    Raises:
      ValueError: a leaf is missing, or has another shape or a dtype of another kind; one sentence.
    """
    try:
      leaves = [get(observation) for get in self._getters]
      if not all(hasattr(leaf, 'dtype') for leaf in leaves):
        leaves = [np.asarray(leaf) for leaf in leaves]
      dtypes = [leaf.dtype for leaf in leaves]
      if dtypes == self._dtypes and [leaf.shape for leaf in leaves] == self._shapes:
        return leaves
    except (LookupError, TypeError, ValueError):
      pass  # `misfit` says why.
    if wrong := self.misfit(observation):
      raise ValueError(wrong)
    self._dtypes = dtypes
    return leaves

  def misfit(self, observation: Nest) -> str:
    """Returns the first leaf that does not fit, in words; '' if all do."""
    for (path, spec), get in zip(self._declared, self._getters, strict=True):
      try:
        leaf = get(observation)
        array = np.asarray(leaf)
      except (LookupError, TypeError):
        found = 'missing'
      except ValueError:  # A list of lists of several lengths.
        found = 'no array'
      else:
        # A number may stand for an array of one, and the other way round.
        same = (array.shape or (1,)) == (tuple(spec.shape) or (1,))
        if same and _takes(spec.dtype, array.dtype):
          continue
        found = f'{array.dtype} {list(array.shape)}'
        if array.dtype == object:
          found = f'a {type(leaf).__name__}'
      name = '/'.join(map(str, ('observation', *path)))
      return f'the {name} is {found}, but declared as {np.dtype(spec.dtype)} {list(spec.shape)}'
    return ''


def _getter(path: tuple[Any, ...]) -> Callable[[Nest], Any]:
  """Returns a function from a nest to the leaf at a path."""
  if len(path) == 1:
    return operator.itemgetter(path[0])
  return functools.partial(functools.reduce, operator.getitem, path)


def _takes(declared: Any, found: Any) -> bool:
  """Returns whether a value of one dtype is one of another: floats of any size, integers, bools."""
  whole = np.dtype(declared).kind in 'biu' and np.dtype(found).kind in 'biu'
  return whole or np.can_cast(found, declared, 'same_kind')


def returned_by(method: Callable[..., Any]) -> str:
  """Returns 'reset() of Mine, at line 7 of FILE', without the place if it is not Python's."""
  function = getattr(method, '__func__', method)
  name = f'{method.__name__}() of {type(getattr(method, "__self__", None)).__name__}'
  code = getattr(function, '__code__', None)
  return f'{name}, at line {code.co_firstlineno} of {code.co_filename}' if code else name
