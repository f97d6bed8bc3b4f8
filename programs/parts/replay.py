"""Replay servers and their tables."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import launchpad as lp

from programs.options.actors import ActorsConfig
from programs.options.prioritized import PrioritizedConfig
from programs.options.queue import QueueConfig
from programs.parts.launchpad_nodes import AddressHandle, Deferred, ReplayNode


def add_replay(
  program: lp.Program,
  config: ActorsConfig,
  make_table: Callable[[], Any],
  monitor: Any,
  checkpoint_period: float = 0.0,
  num_replicas: int = 1,
) -> list[AddressHandle]:
  """Adds the replay servers.

  Args:
    program: the graph.
    config: the program's options.
    make_table: returns the Reverb tables of one server.
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
          make_table,
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


def make_prioritized(config: PrioritizedConfig) -> Callable[[], Any]:
  """Returns the constructor of the prioritized table of one replay server."""
  return functools.partial(
    Deferred('nodes.unrolls.tables', 'prioritized_table'),
    max_size=config.replay_size // config.num_replay_shards,
    min_size=config.min_replay_size // config.num_replay_shards,
    samples_per_insert=config.samples_per_insert,
    error_buffer=config.samples_per_insert_error,
    priority_exponent=config.priority_exponent,
  )
