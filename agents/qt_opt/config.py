"""The options of QT-Opt. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.networks.config import NetworkConfig, require, require_choice
from agents.optimizer_config import OptimizerConfig
from agents.options import option, with_default

VALUE_LOSSES = ('squared', 'cross_entropy')


@dataclasses.dataclass(frozen=True)
class QTOptConfig(OptimizerConfig, NetworkConfig):
  """QT-Opt (Kalashnikov et al. 2018): Q-learning of continuous actions, found by a search.

  The paper's network takes images of 472x472 pixels; here the torso is a choice, and the action joins
  its features.
  """

  action_kinds = ('continuous',)

  unroll_length: int = option(
    1, 'Transitions in an unroll of replay; an unroll has one row more, which only bootstraps.'
  )
  discount: float = option(0.9, 'Discount gamma per environment step; QT-Opt: 0.9.')
  reward_scale: float = option(1.0, 'Factor of the rewards in the targets.')
  head_size: int = option(64, 'Units in the hidden layer after features and action.')
  num_samples: int = option(64, 'Actions that an iteration of the search samples; QT-Opt: 64.')
  num_elites: int = option(6, 'Best of them, to which the search fits its Gaussian; QT-Opt: 6.')
  num_iterations: int = option(2, 'Iterations of the search; QT-Opt: 2.')
  min_std: float = option(
    0.01, "Smallest standard deviation of the search, in halves of an action's range."
  )
  epsilon: float = option(0.2, 'Probability of a uniformly random action in training.')
  averaging: float = option(
    0.9999,
    'Decay of the average of the parameters, which acts and is a target network; QT-Opt: 0.9999.',
  )
  target_update_period: int = option(
    6000,
    'Learner steps between copies to the lagged target network, which is one to two periods old; '
    'QT-Opt: 6000.',
  )
  value_loss: str = option(
    'squared',
    'Loss of Q: squared; or cross_entropy, for returns in [0, 1], of which Q is the sigmoid, as in '
    'QT-Opt.',
  )
  max_gradient_norm: float = with_default(OptimizerConfig, 'max_gradient_norm', 40.0)

  def _check(self) -> None:
    for name in ('unroll_length', 'head_size', 'num_elites', 'num_iterations'):
      value = getattr(self, name)
      require(value >= 1, name, value, 'at least 1')
    require(
      self.target_update_period >= 1,
      'target_update_period',
      self.target_update_period,
      'at least 1',
    )
    expected = f'at least --num_elites, {self.num_elites}'
    require(self.num_samples >= self.num_elites, 'num_samples', self.num_samples, expected)
    for name in ('discount', 'epsilon'):
      value = getattr(self, name)
      require(0.0 <= value <= 1.0, name, value, 'a number from 0 to 1')
    require(0.0 <= self.averaging < 1.0, 'averaging', self.averaging, 'a number from 0 to below 1')
    require(self.reward_scale > 0.0, 'reward_scale', self.reward_scale, 'above 0')
    require(self.min_std >= 0.0, 'min_std', self.min_std, '0 or more')
    require_choice('value_loss', self.value_loss, VALUE_LOSSES)
    require(self.core == 'none', 'core', self.core, 'none, since QT-Opt has no memory')
