"""Nests of arrays, as in `agents.types`: their leaves by name. Imports no JAX."""

from __future__ import annotations

from typing import Any

from agents.types import Nest


def is_nest(nest: Nest) -> bool:
  """Returns whether it is a nest of arrays or specs, and not a single one."""
  return isinstance(nest, dict | tuple)


def named(nest: Nest) -> dict[str, Any]:
  """Returns the leaves of a nest by name, as 'camera' or 'goal/0', in the order of `jax.tree`.

  A single array or spec is named ''.
  """
  if not is_nest(nest):
    return {'': nest}
  parts = sorted(nest.items()) if isinstance(nest, dict) else enumerate(nest)
  return {
    f'{name}/{rest}' if rest else str(name): leaf
    for name, part in parts
    for rest, leaf in named(part).items()
  }
