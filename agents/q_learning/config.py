"""The options that agents of Q-learning share. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.options import CheckedOptions, option


@dataclasses.dataclass(frozen=True)
class EpsilonConfig(CheckedOptions):
  """Options of epsilon-greedy exploration, with an epsilon for each environment: R2D2 and PQN."""

  epsilon_base: float = option(
    0.4,
    'Training environment i of N acts at random with probability base^(1 + alpha i / (N - 1)).',
    at_least=0,
    at_most=1,
  )
  epsilon_alpha: float = option(
    7.0,
    'The alpha in that exponent: larger means later environments explore less; 0: all equal.',
    at_least=0,
  )
  evaluation_epsilon: float = option(
    0.0, 'Probability of a random action in evaluation.', at_least=0, at_most=1
  )
