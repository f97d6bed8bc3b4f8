"""The monitor and evaluator nodes of every program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import launchpad as lp

from launchers.program import Program
from nodes.runtime.options import EvaluationOptions
from programs.options.common import CommonConfig
from programs.parts.launchpad_nodes import DataCourierNode, Deferred
from rundir.roles import Role


def add_monitor(
  program: Program, config: CommonConfig, call_timeout: float, num_learners: int = 1
) -> Any:
  """Adds the monitor.

  Args:
    program: the graph.
    config: the program's options.
    call_timeout: deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
    num_learners: number of nodes that report the end of training.

  Returns:
    A handle on the monitor.
  """
  monitor = program.add_node(
    DataCourierNode(
      Deferred('nodes.monitor', 'Monitor'),
      config.run.run_dir,
      config.run.num_steps,
      program.evaluators,  # Nodes that are added later are among them.
      num_learners,
      config.evaluation.videos_kept,
    ),
    label='monitor',
    roles=['monitor'],
  )
  monitor.set_client_kwargs(call_timeout=call_timeout)
  return monitor


def add_evaluator(
  program: Program,
  config: CommonConfig,
  monitor: Any,
  player: Deferred,
  *args: Any,
  roles: Sequence[Role],
  sends: Mapping[str, Role] | None = None,
  receives: Mapping[str, Role] | None = None,
  label: str = 'evaluator',
  options: EvaluationOptions | None = None,
) -> None:
  """Adds an evaluator, unless --eval_envs=0. The run ends once all have played the final parameters.

  Args:
    program: the graph.
    config: the program's options.
    monitor: a handle on the monitor.
    player: the class of a `nodes.evaluation.player.Player`.
    *args: its arguments before its name.
    roles: as `Program.add_node` takes them.
    sends: as `Program.add_node` takes it.
    receives: as `Program.add_node` takes it.
    label: name of its group. The summary has the scores of the group 'evaluator', if there is one.
    options: of this evaluator; None for the program's.
  """
  options = options or config.evaluation
  if options.eval_envs:
    name = f'{label}/0'
    common = monitor, name, options, config.root_seed.child(label)
    node = lp.PyClassNode(Deferred('nodes.evaluator', 'Evaluator'), player, args, *common)
    program.add_node(node, label=label, roles=roles, sends=sends, receives=receives)
    program.evaluators.append(name)
