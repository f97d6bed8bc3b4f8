"""Gymnasium's spaces as specs, and observations of a batch as nests of our arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from acme import specs
from gymnasium import spaces

from environments.base import bounded_spec, discrete_spec
from environments.nests import ACTION_MASK, Nest, is_image

_ARRAYS = (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)


def is_nest(space: spaces.Space) -> bool:
  """Returns whether a space is a Dict or a Tuple."""
  return isinstance(space, spaces.Dict | spaces.Tuple)


def observation_spec(space: spaces.Space, name: str = 'observation') -> Nest:
  """Returns the spec of observations: that of a Box, or a nest of specs for a Dict or a Tuple.

  Floats become float32. Within a nest a Discrete becomes an int32 DiscreteArray from 0, and
  MultiBinary and MultiDiscrete keep their dtypes.

  Raises:
    ValueError: the space, or a part of it, has no array of a fixed shape; one sentence.
  """
  if isinstance(space, spaces.Dict):
    return {key: observation_spec(part, key) for key, part in space.items()}
  if isinstance(space, spaces.Tuple):
    return tuple(observation_spec(part, str(i)) for i, part in enumerate(space))
  if isinstance(space, spaces.Discrete):
    return specs.DiscreteArray(int(space.n), np.int32, name)
  if not isinstance(space, _ARRAYS):
    raise ValueError(f'the observation space is {space}, which has no array form')
  floating = np.issubdtype(space.dtype, np.floating)
  return specs.Array(space.shape, np.float32 if floating else space.dtype, name)


def nest_of(space: spaces.Space) -> Callable[[Any], Nest]:
  """Returns a function from a vector environment's batch to a nest of arrays `[N, ...]`.

  Its dictionaries and tuples are plain ones; arrays are in C order and in the dtypes of the spec.
  """
  if isinstance(space, spaces.Dict):
    parts = {key: nest_of(part) for key, part in space.items()}
    return lambda batch: {key: part(batch[key]) for key, part in parts.items()}
  if isinstance(space, spaces.Tuple):
    several = [nest_of(part) for part in space]
    return lambda batch: tuple(part(batch[i]) for i, part in enumerate(several))
  dtype, start = observation_spec(space).dtype, getattr(space, 'start', 0)
  if isinstance(space, spaces.Discrete) and start:
    return lambda batch: np.asarray(batch - start, dtype)
  return lambda batch: np.ascontiguousarray(batch, dtype)


def has_image(space: spaces.Space) -> bool:
  """Returns whether a part of a space, except for an action mask, is an image."""
  if isinstance(space, spaces.Dict):
    return any(has_image(part) for key, part in space.items() if key != ACTION_MASK)
  if isinstance(space, spaces.Tuple):
    return any(map(has_image, space))
  return isinstance(space, spaces.Box) and is_image(space.shape, space.dtype)


def action_spec(space: spaces.Space) -> specs.Array:
  """Returns the spec of one action: int32 from 0, of a vector for several at once, or float32.

  Raises:
    ValueError: the space is none of Discrete, a vector of MultiDiscrete and a bounded Box; one sentence.
  """
  if isinstance(space, spaces.Discrete):
    return discrete_spec(space.n)
  if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
    return discrete_spec(space.nvec)
  if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
    spec = bounded_spec(space.shape, space.low, space.high)
    if spec is not None:
      return spec
  raise ValueError(
    f'the action space is neither Discrete, a vector of MultiDiscrete, nor a bounded Box: {space}'
  )
