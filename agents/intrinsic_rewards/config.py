"""The options of learned intrinsic rewards. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from agents.networks.config import require, require_choice
from agents.optimizer_config import OptimizerConfig
from agents.options import option

REWARDS = ('learned', 'extrinsic', 'count')
MEMORIES = ('gru', 'none')
OBJECTIVES = ('lifetime', 'episode')


@dataclasses.dataclass(frozen=True)
class IntrinsicRewardsConfig(OptimizerConfig):
  """Learned intrinsic rewards (Zheng et al. 2020).

  We did not have the paper's appendix. A default is the paper's only where its help text says so.

  Attributes:
    action_kinds: those that the agent takes, of `agents.spaces`; a property of it, not an option.
  """

  action_kinds: ClassVar[tuple[str, ...]] = ('discrete',)

  inner_period: int = option(
    8,
    'Steps of a lifetime between updates of the inner policy, the length of its trajectories.',
    at_least=1,
  )
  inner_updates: int = option(
    5,
    'Inner trajectories in an unroll, N in Zheng et al., through whose updates the outer update '
    'differentiates.',
    at_least=1,
  )
  inner_learning_rate: float = option(
    1.0,
    'Step size of the inner policy, which each inner update adds times its gradient.',
    above=0,
  )
  inner_discount: float = option(
    0.9, 'Discount of the inner return, within an inner episode.', at_least=0, at_most=1
  )
  discount: float = option(
    0.99, 'Discount of the lifetime return, per environment step.', at_least=0, at_most=1
  )
  inner_sizes: tuple[int, ...] = option(
    (),
    'Units in each hidden layer of the inner policy; none: logits are linear, so that with one-hot '
    'features they are a table.',
  )
  inner_scale: float = option(
    0.01,
    "Standard deviation of the last layer's weights, drawn at the start of each lifetime.",
    at_least=0,
  )
  inner_reward: str = option(
    'learned',
    'Reward that the inner policy maximises: learned; extrinsic, the reward of the environment; or '
    'count, the latter plus count_bonus / sqrt(visits of features and action in the lifetime).',
  )
  reward_memory: str = option(
    'gru',
    'Memory of the learned reward over the lifetime: gru, or none as in the ablation of Zheng et al.',
  )
  reward_sees_extrinsic: bool = option(
    True, "Whether the learned reward's inputs have the extrinsic reward, as in Zheng et al."
  )
  outer_objective: str = option(
    'lifetime',
    'What the outer update maximises: the return of the lifetime, or of the inner episode as in the '
    'ablation of Zheng et al.',
  )
  count_bonus: float = option(0.1, 'Weight of the bonus with inner_reward=count.', at_least=0)
  gru_size: int = option(
    32, 'Units of the recurrent reward, and of the lifetime value.', at_least=1
  )
  baseline_cost: float = option(0.5, 'Weight of the value loss.', at_least=0)
  entropy_cost: float = option(
    0.0,
    "Weight of the inner policy's entropy in the outer objective, which the reward then raises.",
    at_least=0,
  )
  learning_rate: float = 1e-3

  @property
  def unroll_length(self) -> int:
    """Transitions in an unroll."""
    return self.inner_updates * self.inner_period

  @property
  def unroll_rows(self) -> int:
    """Rows of an unroll: one after its transitions only bootstraps."""
    return self.unroll_length + 1

  def _check(self) -> None:
    require(min(self.inner_sizes, default=1) >= 1, 'inner_sizes', self.inner_sizes, '1 or more')
    require_choice('inner_reward', self.inner_reward, REWARDS)
    require_choice('reward_memory', self.reward_memory, MEMORIES)
    require_choice('outer_objective', self.outer_objective, OBJECTIVES)
