"""A learner without inference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp

from programs.options.actors import ActorsConfig
from programs.parts.address import AddressHandle
from programs.parts.deferred import Deferred


def training(config: ActorsConfig) -> dict[str, Any]:
  """Returns the options of `nodes.learning.loop.Training`, which every learner has."""
  return {
    'learner_devices': config.learner_devices,
    'batch_size': config.batch_size,
    'num_steps': config.num_steps,
    'run_dir': config.run_dir,
    'checkpoint_period': config.checkpoint_period,
    'checkpoints_kept': config.checkpoints_kept,
    'record': config.audit,
    'seed': config.root_seed.child('learner'),
  }


def add_learner(
  program: lp.Program,
  config: ActorsConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  replay: Sequence[AddressHandle],
  monitor: Any,
  ask_again_seconds: float,
) -> Any:
  """Adds the learner.

  Args:
    program: to add it to.
    config: of the program.
    make_agent: takes the specs of observations and actions.
    make_environment: takes (number of environments, seed).
    replay: addresses of the replay servers.
    monitor: a handle on it.
    ask_again_seconds: after which who has no answer asks again; see nodes.runtime.rpc.

  Returns:
    A handle on it.
  """
  learner = program.add_node(
    lp.CourierNode(
      Deferred('nodes.learner', 'LearnerNode'),
      make_agent,
      make_environment,
      replay,
      monitor,
      **training(config),
      # At the start, handlers wait for the first parameters; a question that is sent again is a second.
      courier_kwargs={'thread_pool_size': 2 * (config.num_actors + 1) + 4},
    ),
    label='learner',
  )
  learner.set_client_kwargs(call_timeout=ask_again_seconds)
  return learner
