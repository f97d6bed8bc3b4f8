"""The options of evolution strategies. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.networks.config import NetworkConfig
from agents.optimizer_config import OptimizerConfig
from agents.options import option


@dataclasses.dataclass(frozen=True)
class EvolutionConfig(OptimizerConfig, NetworkConfig):
  """Options of evolution strategies; a learner step is a generation."""

  action_kinds = ('discrete', 'multi_discrete', 'continuous')

  num_pairs: int = option(
    64,
    'Pairs of perturbed policies in a generation, with noise of opposite signs; each plays one episode.',
    at_least=1,
  )
  sigma: float = option(
    0.1,
    'Standard deviation of the noise on each parameter; Salimans et al. on Humanoid: 0.02.',
    above=0,
  )
  l2_cost: float = option(
    0.005, 'Weight of half the squared parameters in what is minimised.', at_least=0
  )
  normalize_observations: bool = option(
    False,
    'Whether networks receive observations minus their running mean, divided by their running standard '
    'deviation and clipped to [-10, 10], as Salimans et al. do on MuJoCo; not for uint8 or labels.',
  )
  learning_rate: float = 0.05
  max_gradient_norm: float = 0.0
  mlp_sizes: tuple[int, ...] = (32,)
  activation: str = 'tanh'
