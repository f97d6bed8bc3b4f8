"""Evaluates parameters on whole episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agents.anakin.environment import evaluated
from agents.seeding import Seed
from environments import either, jax_registry, registry
from environments.base import BatchedEnvironment
from environments.elsewhere import Elsewhere
from nodes.evaluation.episodes import Episode, complete_rounds, play_episodes
from nodes.evaluator import standard_error
from viewing.jax_batch import JaxBatch
from viewing.local_policy import LocalPolicy


@dataclasses.dataclass(frozen=True)
class Score:
  """Statistics of a set of episodes. Returns are raw; lengths are in steps."""

  mean: float
  standard_error: float
  median: float
  minimum: float
  maximum: float
  mean_length: float
  episodes: int


def make_environment(
  environments: Any, name: str, options: str, num_envs: int, seed: Seed, python: str = ''
) -> BatchedEnvironment:
  """Makes a batch of a program's environments, in JAX or not.

  Args:
    environments: the program's registry: `environments.registry`, `jax_registry` or `either`.
    name: `family` or `family:task`.
    options: 'key=value,key=value'.
    num_envs: number of environments.
    seed: seed of the batch.
    python: the interpreter that plays the environment, not in JAX; '' for this one.

  Raises:
    ValueError: if there is no such environment; one sentence.
  """
  if either.one(environments, name) is jax_registry:
    return JaxBatch(evaluated(jax_registry.make(name, options)), num_envs, seed)
  number = seed.child('environments').number()
  if python:
    return Elsewhere(python, name, num_envs, number, options)
  return registry.make(name, num_envs, number, options)


def play(
  environment: BatchedEnvironment,
  episodes_each: int,
  policy: LocalPolicy,
  max_steps: int = 0,
  goes_on: Callable[[], bool] = lambda: False,
) -> list[Episode]:
  """Plays the same number of whole episodes in each environment; returns them in order of their ends.

  Args:
    environment: the batch of environments.
    episodes_each: episodes per environment.
    policy: acts in it.
    max_steps: number of steps after which an episode is cut and the round is the last; 0 for no limit.
    goes_on: returns whether to step on after that.
  """
  played = list(
    play_episodes(environment, policy, episodes_each, max_steps=max_steps, goes_on=goes_on)
  )
  return complete_rounds(played, environment.num_envs)


def score(played: Sequence[Episode]) -> Score:
  """Returns the statistics of the episodes."""
  returns = np.array([episode.episode_return for episode in played])
  return Score(
    mean=float(np.mean(returns)),
    standard_error=standard_error(returns),
    median=float(np.median(returns)),
    minimum=float(np.min(returns)),
    maximum=float(np.max(returns)),
    mean_length=float(np.mean([episode.length for episode in played])),
    episodes=len(returns),
  )
