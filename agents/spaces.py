"""Which environments an agent can play, from its options and the specs. Imports no JAX.

Agents check this when they are made, and launch.py before it starts anything.
"""

from __future__ import annotations

from typing import Any

import dm_env.specs
import numpy as np

from agents import nests
from agents.types import Nest

# The kinds of actions, as the `action_kinds` of a config name them.
KINDS = {
  'discrete': 'one discrete action at a time',
  'multi_discrete': 'several discrete actions at once',
  'continuous': 'continuous actions',
}
_LARGEST = float(np.finfo(np.float32).max)
# The key of the action mask in an observation; see `agents.action_mask`.
MASK = 'action_mask'


def num_values(action_spec: dm_env.specs.Array) -> tuple[int, ...] | None:
  """Returns the number of values of each discrete action; None if actions are not discrete.

  A DiscreteArray is one. A BoundedArray of integers `[K]` from 0 is K at once, as Gymnasium's
  MultiDiscrete.
  """
  if isinstance(action_spec, dm_env.specs.DiscreteArray):
    return (int(action_spec.num_values),)
  if (
    isinstance(action_spec, dm_env.specs.BoundedArray)
    and np.issubdtype(action_spec.dtype, np.integer)
    and len(action_spec.shape) == 1
    and not np.any(action_spec.minimum)
  ):
    greatest = np.broadcast_to(action_spec.maximum, action_spec.shape)
    return tuple((greatest.astype(np.int64) + 1).tolist())
  return None


def is_box(action_spec: dm_env.specs.Array) -> bool:
  """Returns whether actions are floats between bounds that are finite, as float32 too."""
  return (
    isinstance(action_spec, dm_env.specs.BoundedArray)
    and np.issubdtype(action_spec.dtype, np.floating)
    and bool(np.all(np.abs(action_spec.minimum) <= _LARGEST))
    and bool(np.all(np.abs(action_spec.maximum) <= _LARGEST))
  )


def kind(action_spec: dm_env.specs.Array) -> str:
  """Returns the kind of actions, a key of `KINDS`.

  Raises:
    ValueError: no agent takes such actions; one sentence.
  """
  if num_values(action_spec) is not None:
    return 'discrete' if isinstance(action_spec, dm_env.specs.DiscreteArray) else 'multi_discrete'
  if is_box(action_spec):
    return 'continuous'
  raise ValueError(
    f'actions are {action_spec!r}, which no agent takes: use a DiscreteArray, a BoundedArray of '
    'integers [K] from 0, or a BoundedArray of floats with finite bounds.'
  )


def names(kinds: tuple[str, ...]) -> str:
  """Returns kinds of actions in words."""
  return ' or '.join(KINDS[kind] for kind in kinds)


def has_mask(observation: Nest) -> bool:
  """Returns whether an observation, or the spec of one, has an entry `action_mask`."""
  return isinstance(observation, dict) and MASK in observation


def seen(observation: Nest) -> Nest:
  """Returns what networks see of an observation, or the spec of it; see `agents.action_mask`."""
  if not has_mask(observation):
    return observation
  others = {name: part for name, part in observation.items() if name != MASK}
  return others if len(others) != 1 else next(iter(others.values()))


def check_actions(config: Any, action_spec: dm_env.specs.Array) -> None:
  """Raises ValueError, one sentence, unless an agent takes the actions.

  Args:
    config: of the agent; its attribute `action_kinds` has keys of `KINDS`.
    action_spec: of one action.
  """
  found = kind(action_spec)
  if found not in config.action_kinds:
    raise ValueError(
      f'the environment has {KINDS[found]}, but this agent takes {names(config.action_kinds)}: use '
      'another agent or environment.'
    )


def check_mask(observation_spec: Nest, action_spec: dm_env.specs.Array) -> None:
  """Raises ValueError, one sentence, if there is a mask that does not fit the actions, or nothing else.

  Args:
    observation_spec: of one observation, a nest.
    action_spec: of one action.
  """
  if not has_mask(observation_spec):
    return
  sizes = num_values(action_spec)
  if sizes is None:
    raise ValueError(f'an observation has an {MASK}, but the actions are continuous: leave it out.')
  if tuple(observation_spec[MASK].shape) != (sum(sizes),):
    raise ValueError(
      f'the {MASK} of an observation is {list(observation_spec[MASK].shape)}, but there are '
      f'{" + ".join(map(str, sizes))} actions: give it one entry for each.'
    )
  if len(observation_spec) == 1:
    raise ValueError(
      f'an observation has nothing besides its {MASK}: add what the agent is to see.'
    )


def check_normalization(config: Any, observation_spec: Nest) -> None:
  """Raises ValueError, one sentence, unless the observations can be normalised.

  An array of uint8, labels, and a nest without floats cannot; the mask does not count.

  Args:
    config: of the agent; it may have the option `normalize_observations`.
    observation_spec: of one observation, a nest.
  """
  if not getattr(config, 'normalize_observations', False):
    return
  shown = seen(observation_spec)
  if nests.is_nest(shown):
    leaves = nests.named(shown).values()
    what = 'have no floats'
    usable = any(np.issubdtype(leaf.dtype, np.floating) for leaf in leaves)
  else:
    labels = isinstance(shown, dm_env.specs.DiscreteArray)
    what = 'are labels' if labels else 'are uint8, which networks scale to [0, 1]'
    usable = not labels and shown.dtype != np.uint8
  if usable:
    return
  raise ValueError(
    f'--normalize_observations is for features, but the observations {what}: leave it out.'
  )
