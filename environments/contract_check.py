"""Tests an environment of a user's own file, to find errors before a program starts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import dm_env
import numpy as np
from acme import specs

from environments import nests, spec_fit, user_file
from environments.base import BatchedEnvironment, Described

NUM_ENVS = 2
_MAX_STEPS = 200


def run(factory: user_file.Named, options: Mapping[str, Any]) -> Described:
  """Makes a batch, plays it until an episode restarts, at most 200 steps, and closes it.

  Returns what it says of one environment.

  Args:
    factory: a factory as in `environments.registry`.
    options: its keyword-only arguments.

  Raises:
    ValueError: one sentence that names the failing call, or the returned and the expected value.
  """
  flag = f'--env={factory}'
  path = factory.file.path
  _require_parameters(factory, flag)
  with user_file.user_code_errors(f'{flag}: making it', path):
    environment = factory(factory.task, NUM_ENVS, 0, **options)
  if not isinstance(environment, BatchedEnvironment):
    is_gymnasium = hasattr(environment, 'observation_space')
    advice = (
      'environments.gym.GymnasiumBatch makes one of a vectorised environment of Gymnasium.'
      if is_gymnasium
      else 'environments.dm.DmEnvBatch makes one of a list of dm_env environments.'
    )
    raise ValueError(
      f'{flag} returned a {type(environment).__name__}, which is not a BatchedEnvironment; {advice}'
    )
  return played(environment, flag, path)


def played(environment: BatchedEnvironment, flag: str, path: str) -> Described:
  """Plays a batch of two of a user's environments as `run` does, and closes it; describes one.

  Args:
    environment: the batch.
    flag: names it in errors.
    path: the path of the user's file.

  Raises:
    ValueError: as `run` does.
  """
  with user_file.user_code_errors(f'{flag}: trying it', path):
    if environment.num_envs != NUM_ENVS:
      raise ValueError(f'num_envs is {environment.num_envs} where {NUM_ENVS} were asked for')
    nests.check(environment.observation_spec(), 'observation_spec()')
    spec = environment.action_spec()
    _require_actions(spec)
    rng = np.random.default_rng(0)
    timestep = environment.reset()
    _require(environment, timestep, 'reset()')
    if not timestep.first().all():
      raise ValueError('reset() must return FIRST for every environment')
    for _ in range(_MAX_STEPS):
      ended = timestep.last()
      action = random_actions(rng, spec, timestep.observation, NUM_ENVS)
      timestep = environment.step(action)
      _require(environment, timestep, 'step()')
      _require_game_over(environment)
      if not (ended == timestep.first()).all():
        raise ValueError(
          'step() after the LAST step of an episode must begin the next with FIRST, and no other may'
        )
      if ended.any():
        break
    found = Described(environment.spec(), environment.action_repeat)
    environment.close()
  return found


def _require_parameters(factory: user_file.Named, flag: str) -> None:
  """Raises ValueError if a factory cannot be called as `run` does."""
  function = factory.load()
  try:
    signature = inspect.signature(function)
  except ValueError:  # A built-in, which says nothing of its parameters.
    return
  try:
    signature.bind('', NUM_ENVS, 0)
  except TypeError as error:
    raise ValueError(
      f'{flag} is {factory.name}{signature}, which must take (task, num_envs, seed); options of the '
      'environment are keyword-only parameters with defaults.'
    ) from error


def _require_actions(spec: specs.Array) -> None:
  """Raises ValueError if actions have no bounds to draw them from."""
  if not isinstance(spec, specs.BoundedArray) or not (
    np.isfinite(spec.minimum).all() and np.isfinite(spec.maximum).all()
  ):
    raise ValueError(
      f'action_spec() is {spec!r}, which must be a DiscreteArray or a BoundedArray with finite bounds'
    )


def _require(environment: BatchedEnvironment, timestep: dm_env.TimeStep, call: str) -> None:
  """Raises ValueError if a timestep violates the interface of `BatchedEnvironment`."""
  declared = nests.named(environment.observation_spec(), 'observation')
  nests.check(timestep.observation, f'the observation of {call}')
  observed = nests.named(timestep.observation, 'observation')
  if observed.keys() != declared.keys():
    raise ValueError(
      f'{call} returned an observation of {", ".join(observed)}, but observation_spec() is of '
      f'{", ".join(declared)}'
    )
  expected = {
    **{name: (spec.shape, spec.dtype) for name, spec in declared.items()},
    'step_type': ((), np.uint8),
    'reward': ((), np.float32),
    'discount': ((), np.float32),
  }
  for name, (shape, dtype) in expected.items():
    value = observed[name] if name in observed else getattr(timestep, name)
    wanted = f'{np.dtype(dtype)} {[NUM_ENVS, *shape]}'
    found = f'{getattr(value, "dtype", type(value).__name__)} {[*np.shape(value)]}'
    if found != wanted:
      raise ValueError(
        f'{call} returned the {name} as {found}, which must be {wanted} '
        f'({spec_fit.returned_by(getattr(environment, call[:-2]))})'
      )
    spec = declared.get(name)
    if isinstance(spec, specs.DiscreteArray) and not np.isin(value, range(spec.num_values)).all():
      raise ValueError(
        f'{call} returned the {name} {np.ravel(value).tolist()}, which must be from 0 to '
        f'{spec.num_values - 1}'
      )
  if (timestep.step_type > dm_env.StepType.LAST).any():
    raise ValueError(
      f'{call} returned the step_type {timestep.step_type.max()}, which must be 0, 1 or 2'
    )
  for name in ('reward', 'discount'):
    value = getattr(timestep, name)
    if not np.isfinite(value).all():
      raise ValueError(f'{call} returned a {name} that is not finite')
  first = timestep.first()
  if (timestep.reward[first] != 0).any() or (timestep.discount[first] != 1).any():
    raise ValueError(
      f'{call} returned a FIRST step with a reward or a discount, which must be 0 and 1'
    )


def _require_game_over(environment: BatchedEnvironment) -> None:
  """Raises ValueError if `game_over` is neither None nor a bool for each environment."""
  over = environment.game_over
  if over is not None and not (
    isinstance(over, np.ndarray) and over.dtype == bool and over.shape == (NUM_ENVS,)
  ):
    raise ValueError(f'game_over is {over!r} after step(), which must be None or bool [{NUM_ENVS}]')


def random_actions(
  rng: np.random.Generator, spec: specs.Array, observation: nests.Nest, num_envs: int
) -> np.ndarray:
  """Returns random actions of every environment, legal ones if the observation has an action mask.

  Args:
    rng: draws them.
    spec: of one action.
    observation: the environments' latest.
    num_envs: N.

  Returns:
    The actions `[N, ...]`, int32 or float32.

  Raises:
    ValueError: the mask has not one entry for each action.
  """
  shape = num_envs, *spec.shape
  if not np.issubdtype(spec.dtype, np.integer):
    return rng.uniform(spec.minimum, spec.maximum, shape).astype(np.float32)
  sizes = np.ravel(np.broadcast_to(spec.maximum, spec.shape)) + 1
  legal = np.ones((num_envs, sizes.sum()))
  if isinstance(observation, dict) and nests.ACTION_MASK in observation:
    mask = observation[nests.ACTION_MASK]
    if mask.shape != legal.shape:
      raise ValueError(
        f'the {nests.ACTION_MASK} is {list(mask.shape[1:])}, but there are {sizes.sum()} actions'
      )
    legal = np.where(mask, 1.0, 0.0)
  scores = np.split(rng.random(legal.shape) + legal, np.cumsum(sizes)[:-1], axis=-1)
  return np.stack([part.argmax(-1) for part in scores], -1).reshape(shape).astype(np.int32)
