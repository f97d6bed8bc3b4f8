"""The node that loads recorded transitions, its table, and its placement."""

from __future__ import annotations

from typing import NamedTuple

import launchpad as lp

from launchers.placement import Resources
from nodes.learning.options import LoadingOptions
from nodes.unrolls import tables, transitions
from nodes.unrolls.table_names import OFFLINE
from programs.options.offline import OfflineConfig
from programs.parts import default_placement
from programs.parts.graph_parts import GraphParts
from programs.parts.launchpad_nodes import Deferred


class Recorded(NamedTuple):
  """The transitions of --offline_data.

  Attributes:
    recorded: how many there are.
    wanted: how many of them replay is to hold.
  """

  recorded: int
  wanted: int


def recorded(config: OfflineConfig) -> Recorded | None:
  """Counts the transitions of --offline_data; returns None without it."""
  if not config.offline_data:
    return None
  found = transitions.count(config.offline_dirs)
  return Recorded(found, min(found, config.offline_size or found))


def make_table(found: Recorded, num_servers: int) -> list[tables.Table]:
  """Returns the table `OFFLINE` of each replay server.

  It is sampled uniformly, at no fixed ratio, once all transitions are loaded.

  Args:
    found: the transitions.
    num_servers: of replay, each with an equal part of them.
  """
  return tables.uniform_table(
    max_size=-(-found.wanted // num_servers),
    min_size=found.wanted // num_servers,
    name=OFFLINE,
  )


def add_loader(
  found: Recorded,
  program: lp.Program,
  config: OfflineConfig,
  parts: GraphParts,
) -> None:
  """Adds the loader.

  Args:
    found: the transitions to load.
    program: the graph.
    config: the program's options.
    parts: of the graph.
  """
  options = LoadingOptions(
    name='replay_loader/0',
    run_dirs=config.offline_dirs,
    recorded=found.recorded,
    wanted=found.wanted,
    audit_dir=config.audit_dir,
  )
  program.add_node(
    lp.PyClassNode(
      Deferred('nodes.replay_loader', 'ReplayLoader'),
      parts.make_agent,
      parts.make_environment,
      parts.replay,
      parts.monitor,
      options,
    ),
    label='replay_loader',
  )


def placement(config: OfflineConfig) -> dict[str, Resources]:
  """Returns the resources of the loader, if any: on the launcher's machine, which has the data."""
  if not config.offline_data:
    return {}
  return {
    'replay_loader': Resources(
      with_launcher=True, restart='on_failure', cpu_env=default_placement.ONE_THREAD
    )
  }
