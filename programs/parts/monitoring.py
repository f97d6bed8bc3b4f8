"""The monitor and evaluator nodes of every program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import launchpad as lp

from launchers.program import Program
from nodes.runtime.periodic_evaluator import EvaluationOptions
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
      config.run_dir,
      config.num_steps,
      int(config.eval_envs > 0),
      num_learners,
      config.videos_kept,
    ),
    label='monitor',
    roles=['monitor'],
  )
  monitor.set_client_kwargs(call_timeout=call_timeout)
  return monitor


def add_evaluator(
  program: Program,
  config: CommonConfig,
  evaluator: Deferred,
  *args: Any,
  roles: Sequence[Role],
  sends: Mapping[str, Role] | None = None,
  receives: Mapping[str, Role] | None = None,
  **kwargs: Any,
) -> None:
  """Adds the evaluator, unless --eval_envs=0.

  Args:
    program: the graph.
    config: the program's options.
    evaluator: the class, a `nodes.runtime.periodic_evaluator.PeriodicEvaluator`.
    *args: its arguments before its name.
    roles: as `Program.add_node` takes them.
    sends: as `Program.add_node` takes it.
    receives: as `Program.add_node` takes it.
    **kwargs: its arguments after the `EvaluationOptions`.
  """
  if config.eval_envs:
    program.add_node(
      lp.PyClassNode(
        evaluator,
        *args,
        'evaluator/0',
        EvaluationOptions(
          num_envs=config.eval_envs,
          episodes=config.eval_episodes,
          period=config.eval_period,
          seed=config.root_seed.child('evaluator'),
          share=config.eval_share,
          final_seconds=config.eval_seconds,
          max_episode_steps=config.eval_episode_steps,
          video_period=config.video_period,
          video_frames=config.video_frames,
        ),
        **kwargs,
      ),
      label='evaluator',
      roles=roles,
      sends=sends,
      receives=receives,
    )
