"""Nests of arrays: an observation may be one array, or a dictionary or tuple of nests.

The order of the leaves is that of JAX: dictionaries by their keys, sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tree

from environments import errors

# The key of the action mask in an observation; `agents.action_mask` defines its meaning.
ACTION_MASK = 'action_mask'

Nest = Any


def leaves(nest: Nest) -> list[Any]:
  """Returns the leaves of a nest, which may be arrays, specs or shapes."""
  return tree.flatten(nest)


def named(nest: Nest, root: str) -> dict[str, Any]:
  """Returns the leaves by name, as 'observation/camera' or 'observation/goal/0'.

  Args:
    nest: of arrays or specs.
    root: the name of the whole, and of a single array.
  """
  return {'/'.join(map(str, (root, *path))): leaf for path, leaf in tree.flatten_with_path(nest)}


def without_mask(nest: Nest) -> Nest:
  """Returns an observation, or the spec of one, without its entry `action_mask`, if it has one."""
  if not isinstance(nest, Mapping):
    return nest
  return {name: part for name, part in nest.items() if name != ACTION_MASK}


def is_image(shape: tuple[int, ...], dtype: Any) -> bool:
  """Returns whether an array is an image: of bytes in two dimensions, or of three and more."""
  return len(shape) > 2 or (len(shape) == 2 and np.dtype(dtype) == np.uint8)


def flattens(text: str) -> bool | None:
  """Returns the value of the option `flatten`: true, false, or None for auto.

  Raises:
    ValueError: the text is something else; one sentence.
  """
  values = {'auto': None, **dict.fromkeys(('true', '1', 'yes'), True)}
  values |= dict.fromkeys(('false', '0', 'no'), False)
  errors.require_option(text.lower() in values, 'flatten', text, 'be auto, true or false')
  return values[text.lower()]


def like(structure: Nest, found: Sequence[Any]) -> Nest:
  """Returns leaves, in the order of `leaves`, as a nest with the structure of another one."""
  return tree.unflatten_as(structure, found)


def arrays_of(timestep: tuple[Any, ...]) -> Sequence[np.ndarray]:
  """Returns the arrays of a timestep: its first three fields, then the leaves of its observation.

  A timestep whose observation is an array is returned as it is.
  """
  if isinstance(timestep[3], np.ndarray):
    return timestep
  return (*timestep[:3], *tree.flatten(timestep[3]))


def fields_of(structure: Nest, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
  """Returns the four fields of the timestep whose arrays these are; `structure` is its observation's."""
  return (*arrays[:3], like(structure, arrays[3:]))


def check(nest: Nest, what: str) -> None:
  """Checks that a nest has dictionaries and tuples only, and none without leaves.

  Args:
    nest: of arrays or specs.
    what: begins the sentence of the error.

  Raises:
    ValueError: one sentence that names the other type.
  """
  if not tree.is_nested(nest):
    return
  if type(nest) not in (dict, tuple) or not nest:
    raise ValueError(
      f'{what} has a {type(nest).__name__} of {len(nest)} parts; use a dict or a tuple of at least one.'
    )
  for part in nest.values() if isinstance(nest, dict) else nest:
    check(part, what)
