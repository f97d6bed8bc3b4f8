"""Which torso, and which model of MuZero, an observation gets. Imports no JAX.

Agents choose when they are made, and launch.py checks the choice before it starts anything.
"""

from __future__ import annotations

from typing import Any

import dm_env.specs
import numpy as np

from agents import nests, spaces
from agents.types import Nest

# The smallest images for which the unpadded convolutions of 'nature' and 'small' output a pixel.
NATURE_MIN_PIXELS, SMALL_MIN_PIXELS = 36, 18
# The smallest and largest images for which --torso=auto chooses 'minatar'.
MINATAR_MIN_PIXELS, MINATAR_MAX_PIXELS = 3, NATURE_MIN_PIXELS - 1
# The smallest images of convolutional torsos and models; the others take anything.
_MIN_PIXELS = {
  'nature': NATURE_MIN_PIXELS,
  'small': SMALL_MIN_PIXELS,
  'residual': NATURE_MIN_PIXELS,
  'minatar': MINATAR_MIN_PIXELS,
  'conv': MINATAR_MIN_PIXELS,
  'impala': 0,
}


def torso(name: str, spec: dm_env.specs.Array) -> str:
  """Returns the name of the torso of an array: `name`, with 'auto' resolved from its spec.

  Raises:
    ValueError: `name` is convolutional and the observation is not an image that it can take.
  """
  if name != 'auto':
    return _fitting('torso', name, spec)
  if _misfit('nature', spec) is None and spec.dtype == np.uint8:
    return 'nature'
  small = _misfit('minatar', spec) is None and max(spec.shape[:2]) <= MINATAR_MAX_PIXELS
  return 'minatar' if small and len(spec.shape) == 3 else 'mlp'


def torsos(name: str, spec: Nest) -> dict[str, str]:
  """Returns the names of the torsos of a nest's leaves: `name` for those it takes, else by 'auto'.

  Raises:
    ValueError: `name` is convolutional and takes none of the leaves; one sentence.
  """
  leaves = nests.named(spec)
  names = {
    leaf: torso(name if _misfit(name, array) is None else 'auto', array)
    for leaf, array in leaves.items()
  }
  if name != 'auto' and name not in names.values():
    shapes = ', '.join(f'{leaf} {list(array.shape)}' for leaf, array in leaves.items())
    raise ValueError(
      f'--torso={name} fits no part of the observations, {shapes}: use --torso=auto.'
    )
  return names


def model(name: str, torso: Any, spec: Nest) -> str:
  """Returns the name of MuZero's model: `name`, with 'auto' resolved from the observation spec.

  Args:
    name: the option `model`.
    torso: the option `torso`: a name, or a function that makes a user's own.
    spec: of one observation, a nest.

  Raises:
    ValueError: `name` is a model of images, and the observation is not an image that it can take; or the
      torso does not fit the model or the observation.
  """
  if torso != 'auto':
    if name not in ('auto', 'torso'):
      raise ValueError(f'--torso has no effect with --model={name}: leave one of them out.')
    _check_torso(torso, spec)
    return 'torso'
  if nests.is_nest(spec):
    if name in ('auto', 'mlp', 'torso'):
      return 'torso'
    parts = ', '.join(nests.named(spec))
    raise ValueError(
      f'--model={name} needs one image but observations have the parts {parts}: use --model=auto.'
    )
  if name != 'auto':
    return _fitting('model', name, spec)
  if _misfit('residual', spec) is None:
    return 'residual'
  return 'conv' if _misfit('conv', spec) is None and len(spec.shape) == 3 else 'mlp'


def check(config: Any, observation_spec: Nest) -> None:
  """Raises ValueError, one sentence, if an agent's network cannot take the observations.

  Args:
    config: of the agent; it may have the options `torso` and `model`.
    observation_spec: of one observation, a nest.
  """
  seen = spaces.seen(observation_spec)
  if hasattr(config, 'model'):
    model(config.model, config.torso, seen)
  else:
    _check_torso(getattr(config, 'torso', 'auto'), seen)


def _check_torso(name: Any, spec: Nest) -> None:
  """Raises ValueError if a torso cannot take the observations; a user's own is tried elsewhere."""
  if not callable(name):
    (torsos if nests.is_nest(spec) else torso)(name, spec)


def _fitting(option: str, name: str, spec: dm_env.specs.Array) -> str:
  if (needed := _misfit(name, spec)) is not None:
    raise ValueError(
      f'--{option}={name} needs images {needed} but observations are {spec.shape}: use '
      f'--{option}=auto.'
    )
  return name


def _misfit(name: str, spec: dm_env.specs.Array) -> str | None:
  """Returns which images a network needs, in a few words, if it cannot take an observation."""
  pixels = _MIN_PIXELS.get(name)
  is_image = len(spec.shape) in (2, 3)
  if pixels is None or (is_image and min(spec.shape[:2]) >= pixels):
    return None
  return f'of at least {pixels}x{pixels} pixels' if pixels else '[H, W] or [H, W, C]'
