"""Names the observation that does not fit its space, where Gymnasium's error names nothing."""

from __future__ import annotations

from typing import Any

import gymnasium
from acme import specs
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv

from environments import spec_fit
from environments.nests import Nest

ERRORS = (ValueError, TypeError, LookupError)  # Which a misfit may cause.


def explain(env: VectorEnv, method: str, error: Exception) -> None:
  """Raises ValueError, one sentence, if an observation that does not fit its space has caused an error.

  Args:
    env: the vector environment.
    method: that has raised it, 'reset' or 'step'.
    error: one of `ERRORS`.
  """
  if wrong := _misfit(env, method):
    raise ValueError(wrong) from error


def _misfit(env: VectorEnv, method: str) -> str:
  """Returns the observation of a vector environment that does not fit, in words; '' if all do."""
  several: Any = env.unwrapped
  if not isinstance(several, SyncVectorEnv):
    return ''
  declared = _declared(several.single_observation_space)
  fit = spec_fit.Fit(declared)
  seen: list[Any] = getattr(several, '_env_obs', [])  # Each environment's latest.
  single: gymnasium.Env
  for single, observation in zip(several.envs, seen, strict=False):
    if observation is not None and (wrong := fit.misfit(observation)):
      return f'{wrong} ({spec_fit.returned_by(getattr(single.unwrapped, method))})'
  return ''


def _declared(space: spaces.Space) -> Nest:
  """Returns the spec of what an environment returns, without parts that are no arrays."""
  if isinstance(space, spaces.Dict):
    return {key: _declared(part) for key, part in space.items()}
  if isinstance(space, spaces.Tuple):
    return tuple(_declared(part) for part in space)
  if space.shape is None or space.dtype is None:
    return {}
  return specs.Array(space.shape, space.dtype)
