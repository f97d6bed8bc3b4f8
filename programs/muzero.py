"""MuZero: actions by a search in a learned model, prioritized replay at a fixed ratio.

The graph is Sebulba's, with another agent and other replay tables, and relabellers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.muzero.config import MuZeroConfig
from launchers.placement import Resources
from nodes.runtime.options import RunOptions
from programs import sebulba
from programs.options import presets
from programs.options.inference import InferenceConfig
from programs.options.preset_choice import OTHERS
from programs.options.reanalyse import ReanalyseOptions
from programs.parts import relabellers
from programs.parts.agent_constructors import make_agent

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
class Config(InferenceConfig):
  """The options of a MuZero run."""

  run: RunOptions = RunOptions(agent='muzero')
  replay: ReanalyseOptions = ReanalyseOptions(priority_exponent=1.0)
  agent: Any = MuZeroConfig()

  def _check(self) -> None:
    nodes, fraction = self.replay.reanalyse_nodes, self.agent.reanalyse_fraction
    if nodes and fraction:
      raise ValueError(
        f'--reanalyse_nodes={nodes} and --reanalyse_fraction={fraction} would search twice; set one of '
        'them to 0.'
      )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  add_nodes = relabellers.add_relabellers if config.replay.num_relabellers else None
  return sebulba.make_graph('muzero', config, make_agent(config), add_nodes=add_nodes)


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return sebulba.placement(config) | relabellers.placement(config)
