"""Options of learners, and the stand-alone learner node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from launchers.program import Program
from nodes.learning.options import TrainingOptions
from programs.options.replay_config import ReplayConfig
from programs.parts.launchpad_nodes import AddressHandle, DataCourierNode, Deferred


def training_options(config: ReplayConfig, name: str) -> TrainingOptions:
  """Returns the options of a program's only learner, in the node `name`."""
  return TrainingOptions(
    name=name,
    run=config.run,
    learning=config.learning,
    batch_parts=config.replay.batch_parts,
    seed=config.root_seed.child('learner'),
    audit_dir=config.audit_dir,
    unrolls_per_item=config.unrolls_per_item,
    max_in_flight=config.replay.max_in_flight,
    steps_per_update=config.steps_per_update,
  )


def add_learner(
  program: Program,
  config: ReplayConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  replay: Sequence[AddressHandle],
  monitor: Any,
  call_timeout: float,
  num_fetching: int,
) -> Any:
  """Adds the stand-alone learner.

  Args:
    program: the graph.
    config: the program's options.
    make_agent: takes the specs of observations and actions.
    make_environment: takes (number of environments, seed).
    replay: addresses of the replay servers.
    monitor: a handle on the monitor.
    call_timeout: deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
    num_fetching: number of nodes that fetch its parameters.

  Returns:
    A handle on the learner.
  """
  learner = program.add_node(
    DataCourierNode(
      Deferred('nodes.learner', 'LearnerNode'),
      make_agent,
      make_environment,
      replay,
      monitor,
      training_options(config, 'learner/0'),
      # At start, the calls of nodes that fetch wait until the first parameters exist.
      courier_kwargs={'thread_pool_size': num_fetching + 4},
    ),
    label='learner',
    roles=['learner'],
    receives={'batches': 'replay'},
  )
  learner.set_client_kwargs(call_timeout=call_timeout)
  return learner
