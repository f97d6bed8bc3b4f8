"""Rules by which offspring of one member of a population replace another. Imports no JAX.

    truncation  "Exploit" of Jaderberg et al. 2017, "Population Based Training of Neural Networks": a
                member of the lowest part copies one of the highest part, drawn uniformly.
    tournament  The rule of ElegantRL-Podracer (Liu et al. 2021): the worst member copies the best; any
                other meets an opponent, drawn by the softmax of its score, and copies it if it has lost.

Under both a member copies only from one with a higher score, so the best is never replaced. A rule knows
the last score of each member, of whatever time, so nobody waits for a generation. The score of a member
whose parameters are no longer finite is -inf.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np


def truncation(
  scores: Mapping[int, float], member: int, share: float, rng: np.random.Generator
) -> int | None:
  """Returns the member to copy; None to copy nobody.

  Args:
    scores: the last one of each member that has one.
    member: that has just got its score.
    share: of the members that are replaced, and as many are copied; rounded up, half at most.
    rng: random numbers.
  """
  order = sorted(scores, key=lambda other: (scores[other], other))
  count = min(math.ceil(round(share * len(order), 9)), len(order) // 2)
  if member not in order[:count]:
    return None
  source = order[len(order) - 1 - int(rng.integers(count))]
  return source if scores[source] > scores[member] else None


def tournament(scores: Mapping[int, float], member: int, rng: np.random.Generator) -> int | None:
  """Returns the member to copy; None to copy nobody. The arguments are those of `truncation`."""
  order = sorted(scores, key=lambda other: (scores[other], other))
  best = order[-1]
  if scores[member] == scores[best]:
    return None
  if scores[member] == scores[order[0]]:
    return best
  finite = [other for other in order if math.isfinite(scores[other])]
  chances = softmax(np.array([scores[other] for other in finite]))
  opponent = finite[int(rng.choice(len(finite), p=chances))]
  return opponent if scores[opponent] > scores[member] else None


def softmax(scores: np.ndarray) -> np.ndarray:
  """Returns the softmax of standardised scores, float64 `[n]`, of which not all are equal."""
  standardised = (scores - scores.mean()) / scores.std()
  powers = np.exp(standardised - standardised.max())
  return powers / powers.sum()
