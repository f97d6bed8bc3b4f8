"""The options that agents with a policy share. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.networks.config import NetworkConfig, require, require_choice
from agents.optimizer_config import OptimizerConfig
from agents.options import option
from agents.rewards_config import RewardsConfig


@dataclasses.dataclass(frozen=True)
class PolicyConfig(OptimizerConfig, NetworkConfig):
  """Options of the network with a policy and a value: that of V-trace and PPO, and of imitation."""

  action_kinds = ('discrete', 'multi_discrete', 'continuous')

  normalize_observations: bool = option(
    False,
    'Whether networks receive observations minus their running mean, divided by their running standard '
    'deviation and clipped to [-10, 10], as in PPO on MuJoCo; not for uint8 or labels. Of a nest, the '
    'parts of floats.',
  )
  separate_critic: bool = option(
    False, 'Whether the value has a torso of its own, as in PPO on MuJoCo; needs --core=none.'
  )
  policy_std: str = option(
    'state',
    'Standard deviation of continuous actions: state, an output of the network, with actions squashed '
    'by tanh; or free, learned parameters, with clipped actions as in PPO on MuJoCo.',
  )

  def _check(self) -> None:
    require_choice('policy_std', self.policy_std, ('state', 'free'))
    if self.separate_critic:
      require(self.core == 'none', 'core', self.core, 'none, or set --noseparate_critic')


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig(RewardsConfig, PolicyConfig):
  """Options of the agents that learn a policy and its value from unrolls: V-trace and PPO."""

  tunable = (
    *OptimizerConfig.tunable,
    'discount',
    'baseline_cost',
    'entropy_cost',
    'reward_scale',
  )

  unroll_length: int = option(
    20,
    'Transitions in an unroll; an unroll has one row more, which only bootstraps.',
    at_least=1,
  )
  discount: float = option(0.99, 'Discount gamma per environment step.', at_least=0, at_most=1)
  rho_bar: float = option(
    1.0,
    'Clip of the importance weight of each temporal difference; determines the fixed point.',
    above=0,
  )
  c_bar: float = option(
    1.0,
    'Clip of the importance weights that propagate later temporal differences back; a lower value '
    'reduces variance and slows convergence.',
    above=0,
  )
  baseline_cost: float = option(
    0.5, 'Weight of the baseline loss, itself half a squared error.', at_least=0
  )
  entropy_cost: float = option(0.01, 'Weight of the entropy bonus, entropy in nats.', at_least=0)
  normalize_rewards: bool = option(
    False,
    'Whether the loss divides rewards by the running standard deviation of the discounted return. They '
    'are then clipped to [-10, 10], as in PPO on MuJoCo.',
  )

  @property
  def unroll_rows(self) -> int:
    """Rows of an unroll: one after its transitions only bootstraps."""
    return self.unroll_length + 1

  def _check(self) -> None:
    require(
      self.rho_bar >= self.c_bar, 'rho_bar', self.rho_bar, f'at least --c_bar, {self.c_bar!r}'
    )
