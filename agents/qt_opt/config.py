"""The options of QT-Opt. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.networks.config import NetworkConfig, require, require_choice
from agents.optimizer_config import OptimizerConfig
from agents.options import option

VALUE_LOSSES = ('squared', 'cross_entropy')


@dataclasses.dataclass(frozen=True)
class QTOptConfig(OptimizerConfig, NetworkConfig):
  """QT-Opt (Kalashnikov et al. 2018): Q-learning of continuous actions, found by a search.

  The paper's network takes images of 472x472 pixels; here the torso is a choice, and the action joins
  its features.
  """

  action_kinds = ('continuous',)

  unroll_length: int = option(
    1,
    'Transitions in an unroll of replay; an unroll has one row more, which only bootstraps.',
    at_least=1,
  )
  discount: float = option(
    0.9, 'Discount gamma per environment step; QT-Opt: 0.9.', at_least=0, at_most=1
  )
  reward_scale: float = option(1.0, 'Factor of the rewards in the targets.', above=0)
  head_size: int = option(64, 'Units in the hidden layer after features and action.', at_least=1)
  num_samples: int = option(64, 'Actions that an iteration of the search samples; QT-Opt: 64.')
  num_elites: int = option(
    6, 'Best of them, to which the search fits its Gaussian; QT-Opt: 6.', at_least=1
  )
  num_iterations: int = option(2, 'Iterations of the search; QT-Opt: 2.', at_least=1)
  min_std: float = option(
    0.01,
    "Smallest standard deviation of the search, in halves of an action's range.",
    at_least=0,
  )
  epsilon: float = option(
    0.2, 'Probability of a uniformly random action in training.', at_least=0, at_most=1
  )
  averaging: float = option(
    0.9999,
    'Decay of the exponential moving average of the parameters, which acts and is a target network; '
    'QT-Opt: 0.9999.',
    at_least=0,
    below=1,
  )
  target_update_period: int = option(
    6000,
    'Learner steps between copies to the lagged target network, which is one to two periods old; '
    'QT-Opt: 6000.',
    at_least=1,
  )
  value_loss: str = option(
    'squared',
    'Loss of Q: squared; or cross_entropy, for returns in [0, 1], of which Q is the sigmoid, as in '
    'QT-Opt.',
  )
  max_gradient_norm: float = 40.0

  @property
  def unroll_rows(self) -> int:
    """Rows of an unroll: one after its transitions only bootstraps."""
    return self.unroll_length + 1

  def _check(self) -> None:
    expected = f'at least --num_elites, {self.num_elites}'
    require(self.num_samples >= self.num_elites, 'num_samples', self.num_samples, expected)
    require_choice('value_loss', self.value_loss, VALUE_LOSSES)
    require(self.core == 'none', 'core', self.core, 'none, since QT-Opt has no memory')
