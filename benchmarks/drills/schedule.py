"""When a drill kills which node."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Due(NamedTuple):
  """A kill to come.

  Attributes:
    at: seconds after the drill began to kill.
    node: such as 'actor-0'.
  """

  at: float
  node: str


def kills(seed: int, mean_seconds: float, nodes: Sequence[str]) -> Iterator[Due]:
  """Yields kills without end: after exponential intervals, each of any node with equal chance.

  Args:
    seed: the same one gives the same kills of the same nodes.
    mean_seconds: of an interval.
    nodes: to choose from, in any order.
  """
  rng = random.Random(seed)
  names, at = sorted(nodes), 0.0
  while True:
    at += rng.expovariate(1 / mean_seconds)
    yield Due(at, rng.choice(names))
