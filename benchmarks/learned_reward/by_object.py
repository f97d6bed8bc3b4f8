"""What the choices of several lifetimes say about each object."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.learned_reward.lifetimes import Choices


class Chosen(NamedTuple):
  """An object over the T inner episodes, float64 `[T]` each."""

  share: np.ndarray  # Of the lifetimes that choose it.
  mean: np.ndarray  # Of the rewards for it; NaN where no lifetime chooses it.
  error: np.ndarray  # Standard error of that mean; NaN where fewer than two lifetimes choose it.


def by_object(choices: Choices, num_objects: int) -> list[Chosen]:
  """Returns the statistics of each object over lifetimes."""
  return [_chosen(choices.objects == i, choices.rewards) for i in range(num_objects)]


def _chosen(here: np.ndarray, rewards: np.ndarray) -> Chosen:
  count = here.sum(1)
  with np.errstate(divide='ignore', invalid='ignore'):
    mean = np.where(here, rewards, 0.0).sum(1) / count
    squares = np.where(here, np.square(rewards - mean[:, None]), 0.0).sum(1)
    error = np.sqrt(squares / (count - 1) / count)
  return Chosen(count / here.shape[1], mean, np.where(count > 1, error, np.nan))
