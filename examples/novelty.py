"""A node between two tables of replay: adds a bonus for rare observations to the rewards."""

import collections

import numpy as np

from agents.types import FIRST
from nodes.transform import Transform


class Novelty(Transform):
  def __init__(self, *parts, scale):
    super().__init__(*parts)
    self._scale, self._bonus, self._visits = scale, 0.0, collections.Counter()

  def transform(self, unrolls, number):
    timestep = unrolls.timestep
    bonus = np.zeros_like(timestep.reward)
    for unroll, observations in enumerate(timestep.observation):
      # The unroll before has counted row 0.
      for row, observation in enumerate(observations[1:], 1):
        seen = observation.tobytes()
        self._visits[seen] += 1
        bonus[unroll, row] = self._scale / np.sqrt(self._visits[seen])
    bonus[timestep.step_type == FIRST] = 0.0  # No action leads to a FIRST row.
    self._bonus = float(bonus.mean())
    return unrolls._replace(timestep=timestep._replace(reward=timestep.reward + bonus))

  def measure(self, seconds):
    return super().measure(seconds) | {'bonus': self._bonus, 'seen': float(len(self._visits))}
