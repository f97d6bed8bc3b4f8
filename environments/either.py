"""Registry of environments of both kinds: those written in JAX, and those that actors step.

For programs that play either. A family of both registries, such as `catch`, is the one in JAX. A user's
own factory is one in JAX unless it takes a number of environments. Importing this module imports no JAX.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from acme import specs

from environments import jax_registry, registry, user_file


def of(name: str) -> ModuleType:
  """Returns the registry of an environment: `jax_registry`, or `registry` also if it is unknown.

  Raises:
    ValueError: the user's own file cannot be read; one sentence.
  """
  if user_file.is_spec(name):
    with user_file.named_by('env'):
      return registry if _takes_number(user_file.named(name)) else jax_registry
  return jax_registry if name.partition(':')[0] in jax_registry.families() else registry


def one(environments: Any, name: str) -> Any:
  """Returns a program's registry, or if that is this module the one that has the environment."""
  return of(name) if environments is sys.modules[__name__] else environments


def families() -> dict[str, str]:
  """Returns one line of help for each family, by name."""
  return registry.families() | jax_registry.families()


def maker(name: str, options: str = '') -> Callable[..., Any]:
  """Returns the `maker` of the registry that has the environment."""
  made: Callable[..., Any] = of(name).maker(name, options)
  return made


def check(name: str, options: str = '') -> specs.EnvironmentSpec:
  """Tries an environment in a process of its own; returns its spec.

  Raises:
    ValueError: as in the registry that has it; one sentence.
  """
  found: specs.EnvironmentSpec = of(name).check(name, options)
  return found


def all_options(name: str, options: str = '') -> dict[str, Any]:
  """Returns every option of an environment with its given or default value.

  Raises:
    ValueError: as in the registry that has it.
  """
  found: dict[str, Any] = of(name).all_options(name, options)
  return found


def _takes_number(own: user_file.Named) -> bool:
  """Returns whether a user's factory is `make(task, num_envs, seed)`, from its source alone.

  What is not a function at the top of the file, such as a class, counts as one in JAX.
  """
  try:
    body = ast.parse(own.file.text).body
  except SyntaxError:
    return True  # Whatever makes it will say where.
  functions = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == own.name)
  return any(len(node.args.posonlyargs + node.args.args) > 1 for node in functions)
