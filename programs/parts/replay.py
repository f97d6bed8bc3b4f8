"""Replay servers and their tables."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import launchpad as lp

from programs.options.actors import ActorsConfig
from programs.options.bellman import BellmanConfig
from programs.options.prioritized import PrioritizedConfig
from programs.options.queue import QueueConfig
from programs.options.reanalyse import ReanalyseConfig
from programs.options.relabelled import RelabelledConfig
from programs.parts.launchpad_nodes import AddressHandle, Deferred, ReplayNode


def add_replay(
  program: lp.Program,
  config: ActorsConfig,
  make_tables: Callable[[], Any],
  monitor: Any,
  checkpoint_period: float = 0.0,
  num_replicas: int = 1,
) -> list[AddressHandle]:
  """Adds the replay servers.

  Args:
    program: the graph.
    config: the program's options.
    make_tables: returns the Reverb tables of one server.
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
          make_tables,
          monitor,
          f'replay/{i}',
          os.path.join(config.run_dir, 'replay', str(i)),
          checkpoint_period,
        )
      )
      for i in range(num_replicas * config.num_replay_shards)
    ]


def make_queue(config: QueueConfig) -> Callable[[], Any]:
  """Returns the constructor of the queue table of one replay server."""
  items = config.queue_size // (config.num_replay_shards * config.unrolls_per_item)
  return functools.partial(Deferred('nodes.unrolls.tables', 'queue_table'), items)


def make_prioritized(config: PrioritizedConfig, share: float = 1.0) -> Callable[[], Any]:
  """Returns the constructor of the prioritized table of one replay server.

  Args:
    config: the program's options.
    share: of the unrolls of a batch that come from this table. The ratio of samples to inserts is times
      this share, so the number of updates is the same as without another table.
  """
  return functools.partial(
    Deferred('nodes.unrolls.tables', 'prioritized_table'),
    max_size=config.replay_size // config.num_replay_shards,
    min_size=config.min_replay_size // config.num_replay_shards,
    samples_per_insert=config.samples_per_insert * share,
    error_buffer=config.samples_per_insert_error * share,
    priority_exponent=config.priority_exponent,
  )


def make_bellman(
  config: BellmanConfig, offline: Callable[[], Any] | None = None
) -> Callable[[], Any]:
  """Returns the constructor of the tables of one replay server, two if there are Bellman updaters.

  The ratio of samples to inserts holds for the updaters. The learner samples each of their copies once
  on average, so both graphs do as many updates.

  Args:
    config: the program's options.
    offline: constructor of a further table, for updaters; None for none.
  """
  if not config.bellman_updaters:
    return make_prioritized(config)
  originals = _originals(
    config,
    samples_per_insert=config.samples_per_insert,
    error_buffer=config.samples_per_insert_error,
  )
  tables = (originals, _relabelled(config, each_once=True))
  return all_tables(*tables, *([offline] if offline else []))


def make_reanalysed(config: ReanalyseConfig) -> Callable[[], Any]:
  """Returns the constructor of the tables of one replay server, three if there are relabellers."""
  if not config.reanalyse_nodes:
    return make_prioritized(config)
  new = make_prioritized(config, config.new_share)
  return all_tables(new, _originals(config), _relabelled(config))


def _originals(config: RelabelledConfig, **ratio: float) -> Callable[[], Any]:
  return functools.partial(
    Deferred('nodes.unrolls.tables', 'uniform_table'),
    max_size=config.replay_size // config.num_replay_shards,
    min_size=config.min_replay_size // config.num_replay_shards,
    **ratio,
  )


def _relabelled(config: RelabelledConfig, each_once: bool = False) -> Callable[[], Any]:
  return functools.partial(
    Deferred('nodes.unrolls.tables', 'relabelled_table'),
    max_size=config.relabelled_size // config.num_replay_shards,
    min_size=config.relabelled // config.num_replay_shards,
    priority_exponent=config.priority_exponent,
    each_once=each_once,
  )


def all_tables(*makers: Callable[[], Any]) -> Callable[[], Any]:
  """Returns the constructor of the tables of one replay server, which are those of all `makers`."""
  return functools.partial(Deferred('nodes.unrolls.tables', 'all_tables'), makers)
