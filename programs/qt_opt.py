"""QT-Opt: continuous actions by a search in Q, targets by Bellman updaters between two replay tables.

The graph is Sebulba's, with another agent, other replay tables, and relabellers. With --offline_data:

replay_loader  --recorded transitions-->  replay x K
"""

from __future__ import annotations

import dataclasses

import launchpad as lp

from agents.options import with_default
from launchers.placement import Resources
from programs import sebulba
from programs.options import presets
from programs.options.agent_choice import WithQTOpt
from programs.options.common import CommonConfig
from programs.options.inference import InferenceConfig
from programs.options.offline import OfflineConfig
from programs.options.preset_choice import OTHERS
from programs.parts import offline, relabellers
from programs.parts.agent_constructors import make_agent
from programs.parts.graph_parts import GraphParts
from programs.parts.replay import make_bellman

environments = sebulba.environments

# Options per family of environments; they override the defaults, and flags override them.
PRESETS = {OTHERS: presets.QT_OPT_SMALL}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig, OfflineConfig, WithQTOpt):
  """The options of a QT-Opt run."""

  env: str = with_default(CommonConfig, 'env', 'gymnasium:Pendulum-v1')


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  found = offline.recorded(config)
  servers = config.num_replicas * config.num_replay_shards
  table = offline.make_table(found, servers) if found else []

  def add_nodes(program: lp.Program, config: Config, parts: GraphParts) -> None:
    relabellers.add_relabellers(program, config, parts)
    if found:
      offline.add_loader(found, program, config, parts)

  return sebulba.make_graph(
    'qt_opt',
    config,
    make_agent(config),
    make_bellman(config, table),
    config.replay_checkpoint_period,
    add_nodes=add_nodes if config.bellman_updaters else None,
  )


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return sebulba.placement(config) | relabellers.placement(config) | offline.placement(config)
