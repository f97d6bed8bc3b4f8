"""Random schedule of a drill's kills."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Due(NamedTuple):
  """A scheduled kill.

  Attributes:
    at: seconds since the start of the killing.
    node: such as 'actor-0'.
  """

  at: float
  node: str


def kills(seed: int, mean_seconds: float, nodes: Sequence[str]) -> Iterator[Due]:
  """Yields endless kills at exponential intervals, each of a uniformly random node.

  Args:
    seed: equal seeds and nodes give equal kills.
    mean_seconds: mean interval.
    nodes: nodes to choose from, in any order.
  """
  rng = random.Random(seed)
  names, at = sorted(nodes), 0.0
  while True:
    at += rng.expovariate(1 / mean_seconds)
    yield Due(at, rng.choice(names))
