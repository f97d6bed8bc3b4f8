"""Replay servers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from launchers.program import Program
from nodes.unrolls import tables
from programs.options.replay_config import ReplayConfig
from programs.parts.launchpad_nodes import AddressHandle, ReplayNode


def add_replay(
  program: Program,
  config: ReplayConfig,
  monitor: Any,
  more_tables: Sequence[tables.Table] = (),
) -> list[AddressHandle]:
  """Adds the replay servers.

  Args:
    program: the graph.
    config: the program's options.
    monitor: a handle on the monitor.
    more_tables: of each server, beside those of `config.replay`.

  Returns:
    A handle on the address of each server; those of a replica are adjacent.
  """
  own = config.replay.make_tables(config.env_group_size)
  with program.group('replay', roles=['replay']):
    return [
      program.add_node(
        ReplayNode(
          tables.all_tables(own, more_tables),
          monitor,
          f'replay/{i}',
          os.path.join(config.run.run_dir, 'replay', str(i)),
          config.replay.checkpoint_period,
        )
      )
      for i in range(config.num_replicas * config.replay.num_replay_shards)
    ]
