"""Actors that ask a server for their actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp

from programs.options.inference import InferenceConfig
from programs.parts.deferred import Deferred


def add_actors(
  program: lp.Program,
  config: InferenceConfig,
  make_environment: Callable[..., Any],
  inference: Sequence[Any],
  monitor: Any,
) -> None:
  """Adds the actors, which ask the inference servers in turn.

  Args:
    program: to add them to.
    config: of the program.
    make_environment: takes (number of environments, seed).
    inference: a handle on each server.
    monitor: a handle on it.
  """
  with program.group('actor'):
    for i in range(config.num_replicas * config.num_actors):
      program.add_node(
        lp.PyClassNode(
          Deferred('nodes.actor', 'Actor'),
          make_environment,
          inference[i % len(inference)],
          monitor,
          f'actor/{i}',
          config.envs_per_actor,
          config.env_groups,
          config.root_seed.child('actor', i),
        )
      )
