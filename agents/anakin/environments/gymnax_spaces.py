"""gymnax's spaces as specs, and its observations as arrays of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces

from agents.types import Nest


def observation_spec(space: Any, name: str) -> Nest:
  """Returns the spec of one observation: a Dict is a dictionary, a Tuple a tuple, a Discrete a label.

  Args:
    space: of gymnax.
    name: of the environment, for the error.

  Raises:
    ValueError: the space, or a part of it, is none of these and no Box; one sentence.
  """
  if isinstance(space, spaces.Dict):
    return {key: observation_spec(part, name) for key, part in space.spaces.items()}
  if isinstance(space, spaces.Tuple):
    return tuple(observation_spec(part, name) for part in space.spaces)
  if isinstance(space, spaces.Discrete):
    return dm_env.specs.DiscreteArray(int(space.n), np.int32, 'observation')
  if isinstance(space, spaces.Box):
    dtype = np.dtype(space.dtype)
    plain = np.float32 if dtype.kind in 'bf' else dtype
    return dm_env.specs.Array(tuple(space.shape), plain, 'observation')
  raise ValueError(f'--env={name} has observations {space}, which have no array form.')


def arrays(spec: Nest, observation: Any) -> Nest:
  """Returns an observation as a nest of arrays in the dtypes of its spec.

  Args:
    spec: of one observation.
    observation: a dictionary, or an object with the same attributes, where the spec is a dictionary.
  """
  if isinstance(spec, dict):
    get = observation.get if isinstance(observation, Mapping) else observation.__getattribute__
    return {key: arrays(part, get(key)) for key, part in spec.items()}
  if isinstance(spec, tuple):
    return tuple(arrays(part, observation[i]) for i, part in enumerate(spec))
  return jnp.asarray(observation, spec.dtype)


def action_spec(space: Any, name: str) -> dm_env.specs.Array:
  """Returns the spec of one int32 action from 0, or of one float32 action.

  Raises:
    ValueError: the space is neither Discrete nor a bounded Box; one sentence.
  """
  if isinstance(space, spaces.Discrete):
    return dm_env.specs.DiscreteArray(int(space.n), np.int32, 'action')
  if isinstance(space, spaces.Box) and jnp.issubdtype(space.dtype, jnp.floating):
    low, high = (
      np.broadcast_to(np.asarray(x, np.float32), space.shape) for x in (space.low, space.high)
    )
    if np.isfinite(low).all() and np.isfinite(high).all():
      return dm_env.specs.BoundedArray(space.shape, np.float32, low, high, 'action')
  raise ValueError(
    f'--env={name} has actions {space}; Anakin plays those that are Discrete or a bounded Box.'
  )


def is_nest(space: Any) -> bool:
  """Returns whether a space is a Dict or a Tuple."""
  return isinstance(space, spaces.Dict | spaces.Tuple)


def one_array(space: Any, observation: Any) -> jax.Array:
  """Returns an observation that is not a nest: of a Discrete one-hot, of a Box in the dtype that it has.

  Floats and bools become float32.
  """
  if isinstance(space, spaces.Discrete):
    return jax.nn.one_hot(observation, space.n, dtype=jnp.float32)
  observation = jnp.asarray(observation)
  if observation.dtype == bool or jnp.issubdtype(observation.dtype, jnp.floating):
    return observation.astype(jnp.float32)
  return observation
