"""Tests an environment in JAX from its functions' shapes alone: nothing is computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from agents import nests
from agents.anakin.environment import JaxEnvironment
from agents.types import Nest, Timestep


def check(environment: JaxEnvironment) -> None:
  """Raises ValueError, one sentence, if the methods do not fit each other or the specs.

  It ends with the line of the method. Exceptions of the environment propagate.
  """
  key = jax.eval_shape(lambda: jax.random.key(0))
  action = jax.ShapeDtypeStruct(environment.action_spec.shape, environment.action_spec.dtype)
  state = _call(environment, 'reset', key)
  later = {'step': _call(environment, 'step', state, action, key)}
  if hasattr(environment, 'restart'):
    later['restart'] = _call(environment, 'restart', state, key)
  wanted: Any = jax.tree.structure(state)
  for name, found in later.items():
    if _described(found) != _described(state):
      raise _error(
        environment,
        name,
        f'returned a state of {_joined(_described(found))}, which must be that of reset(), '
        f'{_joined(_described(state))}',
      )
    structure: Any = jax.tree.structure(found)
    if structure != wanted:
      raise _error(
        environment,
        name,
        f'returned a state with the structure {structure}, which must be that of reset(), {wanted}',
      )


def _call(environment: JaxEnvironment, name: str, *args: Any) -> Any:
  """Returns the state of what a method returns, `(state, timestep)`, with a timestep as declared."""
  method = getattr(environment, name)
  returned, problem = None, ''

  def call(*args: Any) -> Any:
    nonlocal returned, problem
    returned = method(*args)
    problem = _no_arrays(returned)
    return () if problem else returned

  shapes = jax.eval_shape(call, *args)
  if problem:
    raise _error(environment, name, problem)
  if not isinstance(shapes, tuple) or len(shapes) != 2 or not isinstance(shapes[1], Timestep):
    raise _error(
      environment,
      name,
      'must return a state and a timestep, as begin_episode or transition makes it',
    )
  state, timestep = shapes
  declared = Timestep(
    step_type=jax.ShapeDtypeStruct((), np.uint8),
    reward=jax.ShapeDtypeStruct((), np.float32),
    discount=jax.ShapeDtypeStruct((), np.float32),
    observation=environment.observation_spec,
  )
  for part in nests.named(timestep.observation).values():
    if not hasattr(part, 'dtype'):
      raise _error(
        environment,
        name,
        f'returned an observation with a {type(part).__name__}; agents take arrays, dictionaries and '
        'tuples',
      )
  for field, wanted, found in zip(Timestep._fields, declared, timestep, strict=True):
    if _declared(found) != _declared(wanted):
      raise _error(
        environment,
        name,
        f'returned the {field} as {_joined(_declared(found))}, which must be '
        f'{_joined(_declared(wanted))}',
      )
  return state


def _no_arrays(returned: Any) -> str:
  """Returns what is wrong with a leaf that JAX does not take for an array; '' if it takes all."""
  for where, leaf in jax.tree_util.tree_flatten_with_path(returned)[0]:
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
      place = jax.tree_util.keystr(where, simple=True, separator='/')
      return (
        f'returned a {type(leaf).__name__} ({place}), which is neither an array nor a pytree; register '
        'a dataclass with jax.tree_util.register_dataclass'
      )
  return ''


def _error(environment: JaxEnvironment, name: str, problem: str) -> ValueError:
  return ValueError(f'{name}() {problem}{_place(getattr(environment, name))}')


def _place(method: Callable[..., Any]) -> str:
  """Returns where a method is defined, as the end of a sentence; '' if it is not written in Python."""
  code = getattr(inspect.unwrap(method), '__code__', None)
  return f', at line {code.co_firstlineno} of {code.co_filename}' if code else ''


def _described(state: Any) -> dict[str, str]:
  """Returns dtype and shape of each leaf of a pytree, by name."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(state)
  return {
    jax.tree_util.keystr(where, simple=True, separator='/'): _array(leaf) for where, leaf in leaves
  }


def _declared(nest: Nest) -> dict[str, str]:
  """Returns dtype and shape of each leaf of a nest of arrays or specs, by name."""
  return {name: _array(leaf) for name, leaf in nests.named(nest).items()}


def _array(x: Any) -> str:
  """Returns dtype and shape, as JAX computes: float32 for float64. The dtypes of PRNG keys stay."""
  dtype = jax.dtypes.canonicalize_dtype(x.dtype) if isinstance(x.dtype, np.dtype) else x.dtype
  return f'{dtype} {[*x.shape]}'


def _joined(described: dict[str, str]) -> str:
  return ', '.join(f'{name} {what}'.strip() for name, what in described.items()) or 'nothing'
