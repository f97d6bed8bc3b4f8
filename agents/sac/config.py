"""The options of SAC. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.networks.config import NetworkConfig, require
from agents.optimizer_config import OptimizerConfig
from agents.options import option


@dataclasses.dataclass(frozen=True)
class SACConfig(OptimizerConfig, NetworkConfig):
  """SAC (Haarnoja et al. 2018b): a stochastic policy, twin critics and a tuned temperature.

  The defaults are the paper's, which Stable-Baselines3 shares: one learning rate for everything, and two
  hidden layers that an array of features enters directly.
  """

  action_kinds = ('continuous',)

  learning_rate: float = 3e-4
  max_gradient_norm: float = 0.0
  mlp_sizes: tuple[int, ...] = ()
  unroll_length: int = option(
    1,
    'Transitions in an unroll of replay; an unroll has one row more, which only bootstraps.',
    at_least=1,
  )
  discount: float = option(
    0.99, 'Discount gamma per environment step; SAC: 0.99.', at_least=0, at_most=1
  )
  head_sizes: tuple[int, ...] = option(
    (256, 256),
    'Units in each hidden layer of the policy and of each critic, after the torso, which passes vectors '
    'on unless --mlp_sizes adds layers; critics receive the action beside its features; SAC: 256,256.',
  )
  tau: float = option(
    0.005,
    'Share by which the target critics move towards the critics in an update (Polyak averaging); SAC: '
    '0.005.',
    above=0,
    at_most=1,
  )

  @property
  def unroll_rows(self) -> int:
    """Rows of an unroll: one after its transitions only bootstraps."""
    return self.unroll_length + 1

  def _check(self) -> None:
    sizes = self.head_sizes
    require(min(sizes, default=1) >= 1, 'head_sizes', sizes, 'sizes of at least 1')
    require(self.core == 'none', 'core', self.core, 'none, since SAC has no memory')
