"""The options of PQN. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from agents.minibatches_config import MinibatchesConfig
from agents.networks.config import NetworkConfig
from agents.options import option
from agents.q_learning.config import EpsilonConfig
from agents.rewards_config import RewardsConfig


@dataclasses.dataclass(frozen=True)
class PQNConfig(EpsilonConfig, RewardsConfig, MinibatchesConfig, NetworkConfig):
  """PQN, the parallelised Q-network (Gallici et al. 2025).

  The defaults are those of its authors on MinAtar, in purejaxql, except for the learning rate, which
  decays in presets only, and for exploration. There all environments have one epsilon, which falls from
  1 to 0.05 over the first tenth of a run. Here each has its own for the whole run, as in R2D2; their
  mean is 0.06.
  """

  # The normalised layers are what keeps Q-learning stable without a target network.
  layer_norm: ClassVar[bool] = True

  unroll_length: int = option(
    32,
    'Transitions in an unroll; an unroll has one row more, which only bootstraps.',
    at_least=1,
  )
  discount: float = option(0.99, 'Discount gamma per environment step.', at_least=0, at_most=1)
  q_lambda: float = option(
    0.65,
    'Lambda in [0, 1] of the returns that Q learns: 0 bootstraps after each transition, 1 at the end of '
    'the unroll.',
    at_least=0,
    at_most=1,
  )

  num_epochs: int = 2
  num_minibatches: int = 32
  optimizer: str = 'radam'
  learning_rate: float = 5e-4
  max_gradient_norm: float = 10.0

  @property
  def unroll_rows(self) -> int:
    """Rows of an unroll: one after its transitions only bootstraps."""
    return self.unroll_length + 1

  @property
  def minibatches_of_unrolls(self) -> bool:
    """Whether minibatches have whole unrolls; see the base class."""
    return self.core != 'none'
