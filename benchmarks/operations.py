"""Counts the floating-point operations of a function.

XLA's own count has the body of a loop once, however often it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core


def count(function: Callable[..., Any], *arguments: Any) -> float:
  """Returns the operations of all matrix products and convolutions in a call; two for each product.

  A loop counts as often as it runs if that is known, else once. Of branches the longest counts.

  Args:
    function: of JAX.
    arguments: arrays or `jax.ShapeDtypeStruct`s.
  """
  return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of_jaxpr(jaxpr: core.Jaxpr) -> float:
  return sum(map(_of_equation, jaxpr.eqns))


def _of_equation(equation: core.JaxprEqn) -> float:
  name, parameters = equation.primitive.name, equation.params
  inputs: list[Any] = [variable.aval for variable in equation.invars]
  outputs: list[Any] = [variable.aval for variable in equation.outvars]
  if name == 'dot_general':
    (contracted, _), _ = parameters['dimension_numbers']
    return 2.0 * outputs[0].size * math.prod(inputs[0].shape[i] for i in contracted)
  if name == 'conv_general_dilated':
    features = inputs[1].shape[parameters['dimension_numbers'].rhs_spec[0]]
    return 2.0 * outputs[0].size * inputs[1].size / features
  inner = list(map(_of_jaxpr, _inner(parameters)))
  if name == 'scan':
    return parameters['length'] * sum(inner)
  return max(inner) if name == 'cond' else sum(inner)


def _inner(parameters: dict[str, Any]) -> Iterator[core.Jaxpr]:
  """Yields the programs within an equation, such as the body of a loop."""
  for value in parameters.values():
    for part in value if isinstance(value, (tuple, list)) else (value,):
      if isinstance(part, core.ClosedJaxpr):
        yield part.jaxpr
      elif isinstance(part, core.Jaxpr):
        yield part
