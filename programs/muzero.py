"""MuZero: actions by a search in a learned model, prioritized replay at a fixed ratio.

The graph is Sebulba's, with another agent and other replay tables, and relabellers.
"""

from __future__ import annotations

import dataclasses

import launchpad as lp

from agents.options import with_default
from launchers.placement import Resources
from programs import sebulba
from programs.options import presets
from programs.options.agent_choice import WithMuZero
from programs.options.inference import InferenceConfig
from programs.options.preset_choice import OTHERS
from programs.options.prioritized import PrioritizedConfig
from programs.options.reanalyse import ReanalyseConfig
from programs.parts import relabellers
from programs.parts.agent_constructors import make_agent
from programs.parts.replay import make_reanalysed

environments = sebulba.environments

# Options per family of environments; they override the defaults, and flags override them.
PRESETS = {
  'atari': presets.MUZERO_ATARI,
  'atari:Pong': presets.MUZERO_PONG,
  'catch': presets.MUZERO_CATCH,
  'minatar': presets.MUZERO_MINATAR,
  OTHERS: presets.MUZERO_SMALL,
}
NAMED_PRESETS = {'published': {'atari': presets.MUZERO_PUBLISHED}}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig, ReanalyseConfig, WithMuZero):
  """The options of a MuZero run."""

  priority_exponent: float = with_default(PrioritizedConfig, 'priority_exponent', 1.0)

  def _check(self) -> None:
    self.check_parts(self.batch_size, len(self.learner_devices), 'learner device(s)')
    if self.reanalyse_nodes and self.reanalyse_fraction:
      raise ValueError(
        f'--reanalyse_nodes={self.reanalyse_nodes} and --reanalyse_fraction={self.reanalyse_fraction} '
        'would search twice; set one of them to 0.'
      )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph(
    'muzero',
    config,
    make_agent(config),
    make_reanalysed(config),
    config.replay_checkpoint_period,
    add_nodes=relabellers.add_relabellers if config.reanalyse_nodes else None,
  )


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return sebulba.placement(config) | relabellers.placement(config)
