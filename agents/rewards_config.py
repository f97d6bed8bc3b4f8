"""The options of the rewards that a loss sees. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.options import CheckedOptions, option


@dataclasses.dataclass(frozen=True)
class RewardsConfig(CheckedOptions):
  """Options of agents that scale and clip rewards in the loss: V-trace, PPO and PQN."""

  reward_scale: float = option(1.0, 'Factor of the rewards in the loss, before clipping.', above=0)
  max_abs_reward: float = option(
    0.0,
    'Clip rewards to plus or minus this in the loss; 0 for no clipping; IMPALA on Atari: 1.',
    at_least=0,
  )
