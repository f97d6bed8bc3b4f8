"""The monitor and evaluator nodes of every program."""

from __future__ import annotations

from typing import Any

import launchpad as lp

from programs.options.common import CommonConfig
from programs.parts.launchpad_nodes import DataCourierNode, Deferred


def add_monitor(
  program: lp.Program, config: CommonConfig, call_timeout: float, num_learners: int = 1
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
      config.evaluation.eval_envs > 0,
      num_learners,
      config.evaluation.videos_kept,
    ),
    label='monitor',
  )
  monitor.set_client_kwargs(call_timeout=call_timeout)
  return monitor


def add_evaluator(
  program: lp.Program, config: CommonConfig, evaluator: Deferred, *args: Any, **kwargs: Any
) -> None:
  """Adds the evaluator, unless --eval_envs=0.

  Args:
    program: the graph.
    config: the program's options.
    evaluator: the class, a `nodes.runtime.periodic_evaluator.PeriodicEvaluator`.
    *args: its arguments before the options of evaluation.
    **kwargs: its arguments after them.
  """
  if config.evaluation.eval_envs:
    seed = config.root_seed.child('evaluator')
    node = lp.PyClassNode(evaluator, *args, config.evaluation, seed, **kwargs)
    program.add_node(node, label='evaluator')
