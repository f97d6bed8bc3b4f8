"""Tests an environment in JAX from its functions' shapes alone: nothing is computed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from agents import nests
from agents.anakin.environment import JaxEnvironment
from agents.types import Nest, Timestep


def check(environment: JaxEnvironment) -> None:
  """Raises ValueError, one sentence, if `reset` and `step` do not fit each other or the specs.

  Exceptions of the environment propagate.
  """
  key = jax.eval_shape(lambda: jax.random.key(0))
  action = jax.ShapeDtypeStruct(environment.action_spec.shape, environment.action_spec.dtype)
  state = _check(environment, jax.eval_shape(lambda key: environment.reset(key), key), 'reset()')
  stepped = jax.eval_shape(lambda *args: environment.step(*args), state, action, key)
  later = _check(environment, stepped, 'step()')
  if _described(later) != _described(state):
    raise ValueError(
      f'step() returned a state of {_text(later)}, which must be that of reset(), {_text(state)}'
    )


def _check(environment: JaxEnvironment, returned: Any, call: str) -> Nest:
  """Returns the state of what a call returned, `(state, timestep)`, with a timestep as declared."""
  if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Timestep):
    raise ValueError(
      f'{call} must return a state and a timestep, as begin_episode or transition makes it'
    )
  state, timestep = returned
  declared = Timestep(
    step_type=jax.ShapeDtypeStruct((), np.uint8),
    reward=jax.ShapeDtypeStruct((), np.float32),
    discount=jax.ShapeDtypeStruct((), np.float32),
    observation=environment.observation_spec,
  )
  for name, wanted, found in zip(Timestep._fields, declared, timestep, strict=True):
    if _described(found) != _described(wanted):
      raise ValueError(
        f'{call} returned the {name} as {_text(found)}, which must be {_text(wanted)}'
      )
  return state


def _described(nest: Nest) -> dict[str, str]:
  """Returns dtype and shape of each leaf of a nest of arrays or specs, by name."""
  return {name: f'{_dtype(x.dtype)} {[*x.shape]}' for name, x in nests.named(nest).items()}


def _dtype(dtype: Any) -> Any:
  """Returns the dtype that JAX computes with: float32 for float64. Those of PRNG keys stay."""
  return jax.dtypes.canonicalize_dtype(dtype) if isinstance(dtype, np.dtype) else dtype


def _text(nest: Nest) -> str:
  parts = (f'{name} {what}'.strip() for name, what in _described(nest).items())
  return ', '.join(parts) or 'nothing'
