"""The options of AVRIL. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from agents.bc.config import check_memoryless
from agents.networks.config import NetworkConfig
from agents.optimizer_config import OptimizerConfig
from agents.options import option


@dataclasses.dataclass(frozen=True)
class AVRILConfig(OptimizerConfig, NetworkConfig):
  """AVRIL (Chan and van der Schaar 2021): a posterior over the reward of whoever was recorded.

  The defaults are those of its released code, which has a reward of states.
  """

  action_kinds = ('discrete',)

  unroll_length: ClassVar[int] = 1  # A transition, and the action after it.
  unroll_rows: ClassVar[int] = 2
  # The network is that of behaviour cloning of discrete actions, whose logits are Q.
  policy_std: ClassVar[str] = 'state'
  separate_critic: ClassVar[bool] = False
  normalize_observations: ClassVar[bool] = False

  discount: float = option(
    1.0, 'Discount gamma per environment step; released code: 1.', at_least=0, at_most=1
  )
  td_cost: float = option(
    1.0,
    'Weight lambda of the temporal differences of Q, as log-likelihood under the reward posterior.',
    at_least=0,
  )
  kl_cost: float = option(
    1.0, 'Weight of the divergence of the reward posterior from N(0, 1).', at_least=0
  )

  def _check(self) -> None:
    check_memoryless(self, 'AVRIL')
