"""Nests of arrays, as in `agents.types`: their leaves by name."""

from __future__ import annotations

from typing import Any

import jax

from agents.types import Nest


def is_nest(nest: Nest) -> bool:
  """Returns whether it is a nest of arrays or specs, and not a single one."""
  return not jax.tree_util.all_leaves([nest])


def named(nest: Nest) -> dict[str, Any]:
  """Returns the leaves of a nest by name, as 'camera' or 'goal/0', in the order of `jax.tree`."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(nest)
  return {jax.tree_util.keystr(path, simple=True, separator='/'): leaf for path, leaf in leaves}
