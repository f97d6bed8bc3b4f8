"""Replay servers and their tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import launchpad as lp

from nodes.unrolls import tables
from nodes.unrolls.table_names import UNROLLS
from nodes.unrolls.tables import Table
from programs.options.actors import ActorsConfig
from programs.options.bellman import BellmanConfig
from programs.options.prioritized import PrioritizedConfig
from programs.options.queue import QueueConfig
from programs.options.reanalyse import ReanalyseConfig
from programs.options.relabelled import RelabelledConfig
from programs.parts.launchpad_nodes import AddressHandle, ReplayNode


def add_replay(
  program: lp.Program,
  config: ActorsConfig,
  replay_tables: Sequence[Table],
  monitor: Any,
  checkpoint_period: float = 0.0,
  num_replicas: int = 1,
) -> list[AddressHandle]:
  """Adds the replay servers.

  Args:
    program: the graph.
    config: the program's options.
    replay_tables: of each server.
    monitor: a handle on the monitor.
    checkpoint_period: seconds between checkpoints; 0 for none, as for a queue.
    num_replicas: number of replicas, each with num_replay_shards servers.

  Returns:
    A handle on the address of each server; those of a replica are adjacent.
  """
  with program.group('replay'):
    return [
      program.add_node(
        ReplayNode(
          replay_tables,
          monitor,
          f'replay/{i}',
          os.path.join(config.run_dir, 'replay', str(i)),
          checkpoint_period,
        )
      )
      for i in range(num_replicas * config.num_replay_shards)
    ]


def make_queue(config: QueueConfig, name: str = UNROLLS) -> list[Table]:
  """Returns a queue table of each replay server."""
  size = config.queue_size // (config.num_replay_shards * config.unrolls_per_item)
  return tables.queue_table(size, name)


def make_prioritized(config: PrioritizedConfig, share: float = 1.0) -> list[Table]:
  """Returns the prioritized table of each replay server.

  Args:
    config: the program's options.
    share: of the unrolls of a batch that come from this table. The ratio of samples to inserts is times
      this share, so the number of updates is the same as without another table.
  """
  return tables.prioritized_table(
    max_size=config.replay_size // config.num_replay_shards,
    min_size=config.min_replay_size // config.num_replay_shards,
    samples_per_insert=config.samples_per_insert * share,
    error_buffer=config.samples_per_insert_error * share,
    priority_exponent=config.priority_exponent,
  )


def make_bellman(config: BellmanConfig, offline: Sequence[Table] = ()) -> list[Table]:
  """Returns the tables of each replay server, two if there are Bellman updaters.

  The ratio of samples to inserts holds for the updaters. The learner samples each of their copies once
  on average, so both graphs do as many updates.

  Args:
    config: the program's options.
    offline: a further table, for updaters.
  """
  if not config.bellman_updaters:
    return make_prioritized(config)
  originals = _originals(config, config.samples_per_insert, config.samples_per_insert_error)
  return tables.all_tables(originals, _relabelled(config, each_once=True), offline)


def make_reanalysed(config: ReanalyseConfig) -> list[Table]:
  """Returns the tables of each replay server, three if there are relabellers."""
  if not config.reanalyse_nodes:
    return make_prioritized(config)
  new = make_prioritized(config, config.new_share)
  return tables.all_tables(new, _originals(config), _relabelled(config))


def _originals(
  config: RelabelledConfig, samples_per_insert: float = 0.0, error_buffer: float = 0.0
) -> list[Table]:
  return tables.uniform_table(
    config.replay_size // config.num_replay_shards,
    config.min_replay_size // config.num_replay_shards,
    samples_per_insert,
    error_buffer,
  )


def _relabelled(config: RelabelledConfig, each_once: bool = False) -> list[Table]:
  return tables.relabelled_table(
    max_size=config.relabelled_size // config.num_replay_shards,
    min_size=config.relabelled // config.num_replay_shards,
    priority_exponent=config.priority_exponent,
    each_once=each_once,
  )
