"""Nests of arrays, as in `agents.types`: their leaves by name. Imports no JAX."""

from __future__ import annotations

from typing import Any

from agents.types import Nest


def is_nest(nest: Nest) -> bool:
  """Returns whether it is a nest of arrays or specs, and not a single one."""
  return isinstance(nest, dict | tuple)


def named(nest: Nest) -> dict[str, Any]:
  """Returns the leaves of a nest by name, as 'camera' or 'goal/0', in the order of `jax.tree`."""
  found = {}
  for name, part in sorted(nest.items()) if isinstance(nest, dict) else enumerate(nest):
    if is_nest(part):
      found.update({f'{name}/{rest}': leaf for rest, leaf in named(part).items()})
    else:
      found[str(name)] = part
  return found
