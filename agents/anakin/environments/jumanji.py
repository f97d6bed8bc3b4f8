"""The environments of Jumanji (Bonnet et al. 2024), with their action masks."""

from __future__ import annotations

from typing import Any

import dm_env.specs
import jax.numpy as jnp
import jumanji
import numpy as np
from jumanji import registration, specs

from agents.anakin.environments import errors
from agents.anakin.environments.suite import (
  Moved,
  SuiteEnvironment,
  arguments,
  defaults,
  discrete,
)
from agents.types import Array, Nest

_CLOCK, _MASK = 'step_count', 'action_mask'


class Jumanji(SuiteEnvironment):
  """One environment. An observation is a dictionary, whose `action_mask` has the legal actions.

  A whole number with bounds is a label. The clock is the share of the time limit, float32 in [0, 1].
  Where an action is several discrete values with one mask for their combinations, it is here the number
  of the combination. A time limit terminates where the observation has the clock, as in Jumanji, and
  truncates where it has not.
  """

  def __init__(self, name: str, environment: Any):
    """Wraps an environment from `jumanji.make`; `name` is for errors."""
    self._environment = environment
    self._limit = getattr(environment, 'time_limit', None)
    parts = _parts(environment.observation_spec)
    self._has_clock = _CLOCK in parts
    mask = parts.get(_MASK)
    mask_shape = None if mask is None else tuple(mask.shape)
    sizes = np.asarray(environment.action_spec.num_values) if _is_discrete(environment) else None
    self._combined = sizes is not None and sizes.ndim > 0 and mask_shape == tuple(sizes.flat)
    self._sizes = sizes
    super().__init__(name, self._actions(name, mask))
    self.observation_spec = _with_labels(self.observation_spec, environment.observation_spec)

  def _actions(self, name: str, mask: Any) -> dm_env.specs.Array:
    sizes, spec = self._sizes, self._environment.action_spec
    if self._combined:
      assert sizes is not None
      return discrete(int(sizes.prod()))
    if sizes is not None and sizes.ndim == 0:
      return discrete(int(sizes))
    if (
      sizes is not None and sizes.ndim == 1 and (mask is None or np.prod(mask.shape) == sizes.sum())
    ):
      return dm_env.specs.BoundedArray(sizes.shape, np.int32, 0, sizes - 1, 'action')
    raise ValueError(
      f'--env={name} has actions {spec}; Anakin plays those that are discrete, with a mask for each of '
      'them or for their combinations.'
    )

  def _begin(self, key: Array) -> tuple[Any, Any]:
    state, timestep = self._environment.reset(key)
    return state, timestep.observation

  def _move(self, state: Any, action: Array, key: Array) -> Moved:
    del key
    if self._combined:
      assert self._sizes is not None
      action = jnp.stack(jnp.unravel_index(action, tuple(self._sizes.flat)))
    state, timestep = self._environment.step(state, action)
    ended, terminated = timestep.last(), timestep.last() & jnp.all(timestep.discount == 0)
    if self._limit is not None and not self._has_clock and hasattr(state, _CLOCK):
      terminated &= state.step_count < self._limit
    return Moved(state, timestep.observation, timestep.reward, terminated, ended & ~terminated)

  def _observe(self, observation: Any) -> Nest:
    nest = super()._observe(observation)
    if isinstance(nest, dict):
      if _MASK in nest:
        nest[_MASK] = nest[_MASK].astype(bool).reshape(-1)
      if _CLOCK in nest and self._limit:
        nest[_CLOCK] = nest[_CLOCK].astype(jnp.float32) / self._limit
    return nest


def make(task: str, **options: Any) -> Jumanji:
  """Makes one environment.

  Args:
    task: an id that Jumanji registers, such as Snake-v1 or Game2048-v1.
    options: arguments of the environment's constructor that are numbers, such as `num_rows`.

  Raises:
    ValueError: Jumanji has no such id or cannot make it, an option is unknown, or the actions are none
      that Anakin plays.
  """
  ids = sorted(jumanji.registered_environments())
  if task not in ids:
    raise errors.unknown_task('jumanji', task, ids)
  name = f'jumanji:{task}'
  entry = registration._REGISTRY[task]
  known = defaults(registration.load(entry.entry_point))
  given = arguments(name, options, known | {k: entry.kwargs.get(k, known[k]) for k in known})
  with errors.one_sentence(name):
    environment = jumanji.make(task, **given)
  return Jumanji(name, environment)


def _is_discrete(environment: Any) -> bool:
  return isinstance(environment.action_spec, specs.DiscreteArray | specs.MultiDiscreteArray)


def _parts(spec: specs.Spec) -> dict[str, specs.Spec]:
  """Returns the specs that a spec consists of, by name; {} for one array."""
  return {name: part for name, part in vars(spec).items() if isinstance(part, specs.Spec)}


def _with_labels(ours: Nest, theirs: specs.Spec) -> Nest:
  """Returns the spec of an observation in which whole numbers from 0 to a bound are labels."""
  if isinstance(ours, dict):
    parts = _parts(theirs)
    return {name: _with_labels(spec, parts[name]) for name, spec in ours.items()}
  is_bounded = isinstance(theirs, specs.BoundedArray) and not theirs.shape
  if is_bounded and ours.dtype == np.int32 and np.all(np.asarray(theirs.minimum) == 0):
    return dm_env.specs.DiscreteArray(int(theirs.maximum) + 1, np.int32, 'observation')
  return ours
