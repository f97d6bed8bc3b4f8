"""Observations of single environments as the arrays of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tree
from acme import specs

from environments import nests, spec_fit
from environments.nests import ACTION_MASK, Nest


class Observations(Protocol):
  """Makes the observation of a batch.

  Attributes:
    spec: of the observation of one environment of the batch, a nest.
  """

  spec: Nest

  def stack(self, observations: Sequence[Any]) -> Nest:
    """Returns the observations of N environments, `[N, ...]` per leaf, in new arrays."""


class SingleArray:
  """An observation that is an array keeps shape and dtype, but floats are float32 and scalars `[1]`."""

  def __init__(self, spec: Nest):
    """Initialises for observations of a spec."""
    self._fit = spec_fit.Fit(spec)
    blank = tree.map_structure(lambda leaf: np.zeros(leaf.shape, leaf.dtype), spec)
    single = self._array(blank)
    self.spec = specs.Array(single.shape, single.dtype, 'observation')

  def stack(self, observations: Sequence[Any]) -> np.ndarray:
    """See `Observations`."""
    stacked = np.empty((len(observations), *self.spec.shape), self.spec.dtype)
    for i, observation in enumerate(observations):
      stacked[i] = self._array(observation)
    return stacked

  def _array(self, observation: Any) -> np.ndarray:
    (leaf,) = self._fit.leaves(observation)
    array = np.atleast_1d(leaf)
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else array


class Flattened(SingleArray):
  """A nest becomes one float32 vector: its leaves, raveled, in the order of `nests.leaves`."""

  def _array(self, observation: Any) -> np.ndarray:
    leaves = [np.ravel(leaf) for leaf in self._fit.leaves(observation)]
    return np.concatenate(leaves, dtype=np.float32, casting='unsafe')


class Nested:
  """A nest stays one, of dictionaries and tuples; its leaves keep their shapes.

  Floats become float32, and leaves whose spec is a DiscreteArray int32. Other dtypes stay.
  """

  def __init__(self, spec: Nest):
    """Initialises for observations of a spec."""
    self._fit = spec_fit.Fit(spec)
    self.spec = _plain(spec)
    self._leaves = tree.flatten_with_path(self.spec)

  def stack(self, observations: Sequence[Any]) -> Nest:
    """See `Observations`."""
    found = [self._fit.leaves(observation) for observation in observations]
    stacked = []
    for k, (_, spec) in enumerate(self._leaves):
      values = np.empty((len(observations), *spec.shape), spec.dtype)
      for i, leaves in enumerate(found):
        values[i] = leaves[k]
      stacked.append(values)
    return nests.like(self.spec, stacked)


class FlattenedBesideMask:
  """A dictionary with an action mask becomes `{'observation': vector, 'action_mask': mask}`."""

  def __init__(self, spec: Nest):
    """Initialises for observations of a spec."""
    self._vector = Flattened(nests.without_mask(spec))
    self._mask = Nested({ACTION_MASK: spec[ACTION_MASK]})
    self.spec = {'observation': self._vector.spec, **self._mask.spec}

  def stack(self, observations: Sequence[Any]) -> Nest:
    """See `Observations`."""
    vectors = self._vector.stack([nests.without_mask(observation) for observation in observations])
    masks = [{ACTION_MASK: observation[ACTION_MASK]} for observation in observations]
    return {'observation': vectors, **self._mask.stack(masks)}


def make(spec: Nest, flatten: bool | None) -> Observations:
  """Returns what makes the observations of a batch.

  Args:
    spec: of the observations of a dm_env environment.
    flatten: whether a nest becomes one vector, apart from an action mask; None: unless it has an image.
  """
  if not tree.is_nested(spec):
    return SingleArray(spec)
  if flatten is None:
    seen = nests.leaves(nests.without_mask(spec))
    flatten = not any(nests.is_image(leaf.shape, leaf.dtype) for leaf in seen)
  if not flatten:
    return Nested(spec)
  return FlattenedBesideMask(spec) if _has_mask(spec) else Flattened(spec)


def _has_mask(spec: Nest) -> bool:
  return isinstance(spec, dict) and ACTION_MASK in spec and len(spec) > 1


def _plain(spec: Nest) -> Nest:
  """Returns a nest of dm_env specs with plain dictionaries and tuples, and our dtypes."""
  if isinstance(spec, specs.DiscreteArray):
    return specs.DiscreteArray(spec.num_values, np.int32, spec.name)
  if not tree.is_nested(spec):
    dtype = np.float32 if np.issubdtype(spec.dtype, np.floating) else spec.dtype
    return specs.Array(spec.shape, dtype, spec.name)
  if hasattr(spec, 'items'):
    return {name: _plain(part) for name, part in spec.items()}
  return tuple(_plain(part) for part in spec)
