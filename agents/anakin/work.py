"""How much a function computes, from its jaxpr: nothing is compiled or computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax


def elements(function: Callable[..., Any], *args: Any) -> int:
  """Returns how many array elements a function computes, those of its intermediate results included.

  A scan counts once for each of its steps, and all branches of a conditional count. The body of a loop
  whose length depends on data counts once, so this is a lower bound.

  Args:
    function: traceable by JAX.
    *args: its arguments, or their shapes and dtypes.
  """
  return _of(jax.make_jaxpr(function)(*args).jaxpr)


def _of(jaxpr: Any) -> int:
  total = 0
  for equation in jaxpr.eqns:
    inner = [each for value in equation.params.values() for each in _jaxprs(value)]
    if inner:
      total += equation.params.get('length', 1) * sum(map(_of, inner))
    else:
      total += sum(math.prod(x.aval.shape) for x in equation.outvars)
  return total


def _jaxprs(value: Any) -> Iterator[Any]:
  """Yields the jaxprs in a parameter of an equation."""
  if hasattr(value, 'eqns'):
    yield value
  elif hasattr(value, 'jaxpr'):  # Closed over constants.
    yield value.jaxpr
  elif isinstance(value, tuple | list):
    for part in value:
      yield from _jaxprs(part)
