"""Actors and an evaluator that act themselves, with parameters of the learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp

from nodes.inference.layout import layout
from programs.options.actors import ActorsConfig
from programs.parts.address import AddressHandle
from programs.parts.deferred import Deferred

EVALUATOR = Deferred('nodes.impala_evaluator', 'ActingEvaluator')


def add_acting_actors(
  program: lp.Program,
  config: ActorsConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  learner: Any,
  replay: Sequence[AddressHandle],
  monitor: Any,
) -> None:
  """Adds the actors.

  Args:
    program: to add them to.
    config: of the program.
    make_agent: takes the specs of observations and actions.
    make_environment: takes (number of environments, seed).
    learner: a handle on it.
    replay: addresses of the replay servers, to which each actor writes.
    monitor: a handle on it.
  """
  with program.group('actor'):
    for i, stream in enumerate(layout(config.num_actors, config.envs_per_actor, env_groups=1)):
      program.add_node(
        lp.PyClassNode(
          Deferred('nodes.impala_actor', 'ActingActor'),
          make_agent,
          make_environment,
          stream,
          learner,
          replay,
          monitor,
          num_environments=config.num_actors * config.envs_per_actor,
          update_period=config.update_period,
          audit_dir=config.run_dir if config.audit else '',
          seed=config.root_seed.child('actor', i),
        )
      )
