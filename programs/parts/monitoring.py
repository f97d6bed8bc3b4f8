"""The two nodes that every program has."""

from __future__ import annotations

from typing import Any

import launchpad as lp

from nodes.runtime.periodic_evaluator import EvaluationOptions
from programs.options.common import CommonConfig
from programs.parts.launchpad_nodes import Deferred


def add_monitor(
  program: lp.Program, config: CommonConfig, call_timeout: float, num_learners: int = 1
) -> Any:
  """Adds the monitor.

  Args:
    program: to add it to.
    config: of the program.
    call_timeout: the deadline of a call in seconds, after which it is repeated; see nodes.runtime.rpc.
    num_learners: how many nodes report that training has finished.

  Returns:
    A handle on it.
  """
  monitor = program.add_node(
    lp.CourierNode(
      Deferred('nodes.monitor', 'Monitor'),
      config.run_dir,
      config.num_steps,
      config.eval_envs > 0,
      num_learners,
    ),
    label='monitor',
  )
  monitor.set_client_kwargs(call_timeout=call_timeout)
  return monitor


def add_evaluator(
  program: lp.Program, config: CommonConfig, evaluator: Deferred, *args: Any
) -> None:
  """Adds the evaluator, where the program has one.

  Args:
    program: to add it to.
    config: of the program.
    evaluator: its class, a `nodes.runtime.periodic_evaluator.PeriodicEvaluator`.
    *args: what it needs beside the options of evaluation.
  """
  if config.eval_envs:
    program.add_node(
      lp.PyClassNode(
        evaluator,
        *args,
        EvaluationOptions(
          num_envs=config.eval_envs,
          episodes=config.eval_episodes,
          period=config.eval_period,
          seed=config.root_seed.child('evaluator'),
        ),
      ),
      label='evaluator',
    )
