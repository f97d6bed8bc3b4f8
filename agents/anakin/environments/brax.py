"""The environments of Brax (Freeman et al. 2021)."""

from __future__ import annotations

from typing import Any

from brax import envs

from agents.anakin.environments import errors
from agents.anakin.environments.physics import Physics
from agents.anakin.environments.suite import arguments, defaults

# Of Brax's own EpisodeWrapper, which is not used here.
_LIMIT = 1000


def make(task: str, *, max_episode_steps: int = 0, **options: Any) -> Physics:
  """Makes one environment.

  Args:
    task: such as halfcheetah, hopper or ant.
    max_episode_steps: steps after which an episode is truncated; 0 for Brax's own limit, 1,000.
    options: arguments of the environment's constructor, such as `backend`.

  Raises:
    ValueError: Brax has no such environment, or cannot make it; or an option is unknown.
  """
  known = envs._envs
  if task not in known:
    raise errors.unknown_task('brax', task, known)
  name = f'brax:{task}'
  given = arguments(name, options, defaults(known[task]))
  with errors.one_sentence(name):
    environment = known[task](**given)
  return Physics(name, environment, max_episode_steps or _LIMIT)
