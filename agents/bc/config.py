"""The options of behaviour cloning. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from agents.actor_critic.config import PolicyConfig
from agents.networks.config import require


def check_memoryless(config: Any, agent: str) -> None:
  """Raises ValueError, one sentence, if a network needs more than the rows of one transition."""
  require(config.core == 'none', 'core', config.core, f'none, since {agent} has no memory')
  expected = '1, since recorded transitions have no earlier observations'
  require(config.frame_stack == 1, 'frame_stack', config.frame_stack, expected)


@dataclasses.dataclass(frozen=True)
class BCConfig(PolicyConfig):
  """Behaviour cloning (Pomerleau 1989): the policy that makes recorded actions most probable.

  The network is that of V-trace and PPO, which can begin with its parameters.
  """

  unroll_length: ClassVar[int] = 1  # A transition.
  unroll_rows: ClassVar[int] = 2

  def _check(self) -> None:
    check_memoryless(self, 'behaviour cloning')
