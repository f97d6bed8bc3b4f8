"""Craftax and Craftax-Classic (Matthews et al. 2024, Craftax: A Lightning-Fast Benchmark)."""

from __future__ import annotations

from typing import Any

from craftax import craftax_env

from agents.anakin.environments import errors
from agents.anakin.environments.suite import NEVER, Moved, SuiteEnvironment, discrete
from agents.types import Array

_TASKS = tuple(
  f'Craftax-{game}{view}-v1' for game in ('', 'Classic-') for view in ('Symbolic', 'Pixels')
)


class Craftax(SuiteEnvironment):
  """Observations are float32: a vector, or in the games with pixels `[H, W, 3]` from 0 to 1."""

  def __init__(self, name: str, environment: Any, max_episode_steps: int):
    """Wraps an environment that does not reset itself; arguments as in the base class."""
    params = environment.default_params
    self._environment = environment
    self._params = params.replace(max_timesteps=NEVER)
    super().__init__(
      name, discrete(environment.num_actions), max_episode_steps or params.max_timesteps
    )

  def _begin(self, key: Array) -> tuple[Any, Any]:
    observation, state = self._environment.reset_env(key, self._params)
    return state, observation

  def _move(self, state: Any, action: Array, key: Array) -> Moved:
    observation, state, reward, terminated, _ = self._environment.step_env(
      key, state, action, self._params
    )
    return Moved(state, observation, reward, terminated)


def make(task: str, *, max_episode_steps: int = 0) -> Craftax:
  """Makes one environment.

  Args:
    task: such as Craftax-Symbolic-v1 or Craftax-Classic-Symbolic-v1.
    max_episode_steps: steps after which an episode is truncated; 0 for Craftax's own limit, 100,000, or
      10,000 in Craftax-Classic.

  Raises:
    ValueError: there is no such environment, or the limit is negative.
  """
  if task not in _TASKS:
    raise errors.unknown_task('craftax', task, _TASKS)
  environment = craftax_env.make_craftax_env_from_name(task, auto_reset=False)
  return Craftax(f'craftax:{task}', environment, max_episode_steps)
