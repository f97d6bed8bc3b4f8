"""The node that loads recorded transitions, its table, and its placement."""

from __future__ import annotations

from typing import NamedTuple

import launchpad as lp

from launchers.placement import Resources
from launchers.program import Program
from nodes.learning.options import LoadingOptions
from nodes.unrolls import tables, transitions
from nodes.unrolls.table_names import OFFLINE
from programs.options.offline import RecordedOptions
from programs.options.replay_config import ReplayConfig
from programs.parts import default_placement
from programs.parts.graph_parts import GraphParts
from programs.parts.launchpad_nodes import Deferred


class Recorded(NamedTuple):
  """The transitions of --offline_data.

  Attributes:
    run_dirs: of the runs that have recorded them.
    recorded: how many there are.
    wanted: how many of them replay is to hold.
  """

  run_dirs: tuple[str, ...]
  recorded: int
  wanted: int


def recorded(options: RecordedOptions) -> Recorded:
  """Counts the transitions of --offline_data."""
  found = transitions.count(options.offline_dirs)
  return Recorded(options.offline_dirs, found, min(found, options.offline_size or found))


def make_table(found: Recorded, num_servers: int) -> list[tables.Table]:
  """Returns the table `OFFLINE` of each replay server.

  It is sampled uniformly, at no fixed ratio, once all transitions are loaded.

  Args:
    found: the transitions.
    num_servers: of replay, each with an equal part of them.
  """
  return tables.uniform_table(
    max_size=max(1, -(-found.wanted // num_servers)),
    min_size=max(1, found.wanted // num_servers),
    name=OFFLINE,
  )


def add_loader(
  found: Recorded,
  program: Program,
  config: ReplayConfig,
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
    run_dirs=found.run_dirs,
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
    roles=['loader'],
    sends={'offline': 'replay'},
  )


def placement(options: RecordedOptions) -> dict[str, Resources]:
  """Returns the resources of the loader, if any: on the launcher's machine, which has the data."""
  if not (options.offline_data or options.needs_data):
    return {}
  return {
    'replay_loader': Resources(
      with_launcher=True, restart='on_failure', cpu_env=default_placement.ONE_THREAD
    )
  }
