"""Options of the workers of evolution strategies. Imports no JAX."""

from __future__ import annotations

import dataclasses

from agents.options import CheckedOptions, option


@dataclasses.dataclass(frozen=True)
class WorkerOptions(CheckedOptions):
  """The workers that play the episodes of a generation."""

  num_workers: int = option(2, 'worker processes', at_least=1, at_most=65_536)
  virtual_workers: int = option(
    8,
    'parts of a generation, each of which one worker plays at a time; a free worker takes the next, and '
    'the result does not depend on how many there are',
    at_least=1,
  )
  episode_steps: int = option(
    100_000,
    'steps after which a worker ends an episode and counts its return so far, since an environment '
    'without a time limit may never end one',
    at_least=1,
  )
