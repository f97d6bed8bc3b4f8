"""The graph that Sebulba and R2D2 share; they differ in the agent and the replay table.

actor x N   --timesteps-->  inference_learner   --unrolls-->  replay x K
evaluator   --timesteps-->  inference_learner   <--batches--  replay x K
everybody   --report-->     monitor

With --num_replicas=R there are R inference-learners, each with its own N actors and K replay servers.
Their learners are one JAX job, whose coordinator listens beside the first. With --inference_nodes=M:

actor x N, evaluator  --timesteps-->  inference x M  --unrolls-->  replay x K  --batches-->  learner
                                      inference x M  --fetch-->    learner
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import launchpad as lp

from environments import registry as environments
from launchers.placement import Resources
from programs.options.inference import InferenceConfig
from programs.parts import monitoring, places
from programs.parts.actors import add_actors
from programs.parts.deferred import Deferred
from programs.parts.inference import add_inference
from programs.parts.inference_learner import add_inference_learners
from programs.parts.learner import add_learner
from programs.parts.replay import add_replay

ASK_AGAIN_SECONDS = 30


def make_program(
  name: str,
  config: InferenceConfig,
  make_agent: Callable[..., Any],
  make_table: Callable[[], Any],
  replay_checkpoint_period: float = 0.0,
  add_watcher: Callable[[lp.Program, Any], Any] | None = None,
) -> lp.Program:
  """Returns the graph.

  Args:
    name: of the program.
    config: resolved and validated.
    make_agent: takes the specs of observations and actions, returns an `agents.agent.Agent`.
    make_table: returns the Reverb tables of one replay server.
    replay_checkpoint_period: see `programs.parts.replay.add_replay`.
    add_watcher: takes the program and a handle on the monitor, adds a node that sees unrolls go by
      (see `nodes.unrolls.observers`), and returns a handle on it.
  """
  make_environment = environments.maker(config.env, config.env_options)
  program = lp.Program(name)
  ends = config.num_replicas + config.inference_nodes
  monitor = monitoring.add_monitor(program, config, ASK_AGAIN_SECONDS, ends)
  replay = add_replay(
    program, config, make_table, monitor, replay_checkpoint_period, config.num_replicas
  )
  watchers = [add_watcher(program, monitor)] if add_watcher else []
  for watcher in watchers:
    watcher.set_client_kwargs(call_timeout=ASK_AGAIN_SECONDS)
  parts = make_agent, make_environment
  if config.inference_nodes:
    learner = add_learner(program, config, *parts, replay, monitor, ASK_AGAIN_SECONDS)
    inference = add_inference(program, config, *parts, learner, replay, monitor, watchers)
  else:
    inference = add_inference_learners(program, config, *parts, replay, monitor, watchers)
  add_actors(program, config, make_environment, inference, monitor)
  evaluator = Deferred('nodes.evaluator', 'Evaluator')
  monitoring.add_evaluator(program, config, evaluator, make_environment, inference[0], monitor)
  return program


def placement(config: InferenceConfig) -> dict[str, Resources]:
  """Returns where each group runs: what infers or learns on accelerators, the rest on CPUs."""
  replay = Resources(restart=places.restart_of_learner(config))
  actor = Resources(restart='on_failure')
  return places.placement(replay=replay, **places.of_inference(config), actor=actor)
