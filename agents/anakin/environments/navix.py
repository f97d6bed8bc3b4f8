"""The environments of Navix (Pignatelli et al. 2024), which are those of MiniGrid in JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import navix

from agents.anakin.environments import errors
from agents.anakin.environments.suite import Moved, SuiteEnvironment, discrete
from agents.types import Array, Nest

_VIEWS = ('symbolic', 'symbolic_first_person', 'categorical', 'categorical_first_person')


class Navix(SuiteEnvironment):
  """Observations are float32: cells `[H, W, 3]` of object, colour and state, or `[H, W]` of objects."""

  def __init__(self, name: str, environment: Any):
    """Wraps an environment with a time limit that does not reset itself; `name` is for errors."""
    self._environment = environment
    super().__init__(name, discrete(len(environment.action_set)))

  def _begin(self, key: Array) -> tuple[Any, Any]:
    timestep = self._environment.reset(key)
    return timestep, timestep.observation

  def _move(self, state: Any, action: Array, key: Array) -> Moved:
    del key  # The state has one of its own.
    later = self._environment.step(state, action)
    terminated, truncated = later.is_termination(), later.is_truncation()
    return Moved(later, later.observation, later.reward, terminated, truncated)

  def _observe(self, observation: Any) -> Nest:
    # Their bytes are no pixels.
    return jnp.asarray(observation, jnp.float32)


def make(task: str, *, observation: str = 'symbolic', max_episode_steps: int = 0) -> Navix:
  """Makes one environment.

  Args:
    task: an id that Navix registers, such as Navix-Empty-8x8-v0.
    observation: symbolic or categorical, of the whole grid; symbolic_first_person or
      categorical_first_person, of what the agent sees.
    max_episode_steps: steps after which an episode is truncated; 0 for Navix's own limit.

  Raises:
    ValueError: there is no such environment or observation, or the limit is negative.
  """
  known = sorted(navix.registry())
  if task not in known:
    raise errors.unknown_task('navix', task, known)
  if observation not in _VIEWS:
    raise ValueError(
      f'--env_options=observation={observation} is unknown; there are: {", ".join(_VIEWS)}.'
    )
  if max_episode_steps < 0:
    raise errors.negative_limit(max_episode_steps)
  environment = navix.make(task)
  environment = environment.replace(
    disable_autoreset=True,
    max_steps=max_episode_steps or environment.max_steps,
    observation_fn=getattr(navix.observations, observation),
  )
  return Navix(f'navix:{task}', environment)
