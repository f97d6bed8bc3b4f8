"""QT-Opt: continuous actions by a search in Q, targets by Bellman updaters between two replay tables.

The graph is Sebulba's, with another agent, other replay tables, and relabellers. With --offline_data:

replay_loader  --recorded transitions-->  replay x K
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.qt_opt.config import QTOptConfig
from launchers.placement import Resources
from launchers.program import Program
from nodes.runtime.options import RunOptions
from programs import sebulba
from programs.options import presets
from programs.options.inference import InferenceConfig
from programs.options.offline import OfflineOptions, check_agent
from programs.options.preset_choice import OTHERS
from programs.parts import offline, relabellers
from programs.parts.agent_constructors import make_agent
from programs.parts.graph_parts import GraphParts

environments = sebulba.environments

# Options per family of environments; they override the defaults, and flags override them.
PRESETS = {OTHERS: presets.QT_OPT_SMALL}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig):
  """The options of a QT-Opt run."""

  run: RunOptions = RunOptions(env='gymnasium:Pendulum-v1', agent='qt_opt')
  replay: OfflineOptions = OfflineOptions()
  agent: Any = QTOptConfig()

  def _check(self) -> None:
    if self.replay.offline_data:
      check_agent(self.agent)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  found = offline.recorded(config.replay)
  servers = config.num_replicas * config.replay.num_replay_shards

  def add_nodes(program: Program, config: Config, parts: GraphParts) -> None:
    relabellers.add_relabellers(program, config, parts)
    if config.replay.offline_data:
      offline.add_loader(found, program, config, parts)

  return sebulba.make_graph(
    'qt_opt',
    config,
    make_agent(config),
    more_tables=offline.make_table(found, servers) if config.replay.offline_data else [],
    add_nodes=add_nodes if config.replay.num_relabellers else None,
  )


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return (
    sebulba.placement(config) | relabellers.placement(config) | offline.placement(config.replay)
  )
