"""IMPALA: actors that act themselves, with parameters they fetch; Sebulba's queue and learner.

actor x N   --fetch-->          learner   <--batches--  replay x K  <--unrolls--  actor x N
evaluator   --get_variables-->  learner
everybody   --report-->         monitor
"""

from __future__ import annotations

import dataclasses

import launchpad as lp

from agents.vtrace.config import VTraceConfig
from launchers.placement import Resources
from programs import sebulba
from programs.actor_learner import ASK_AGAIN_SECONDS, environments
from programs.options.queue import QueueConfig
from programs.parts import monitoring, places
from programs.parts.acting_actors import EVALUATOR, add_acting_actors
from programs.parts.learner import add_learner
from programs.parts.replay import add_replay, make_queue

PRESETS = sebulba.PRESETS
make_agent = sebulba.make_agent


@dataclasses.dataclass(frozen=True)
class Config(QueueConfig, VTraceConfig):
  """Everything an IMPALA run can be told."""

  def validate(self) -> None:
    """Checks that the options fit together; raises ValueError, one sentence naming the flag."""
    super().validate()
    VTraceConfig.validate(self)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  parts = make_agent(config), environments.maker(config.env, config.env_options)
  program = lp.Program('impala')
  monitor = monitoring.add_monitor(program, config, ASK_AGAIN_SECONDS)
  replay = add_replay(program, config, make_queue(config), monitor)
  learner = add_learner(program, config, *parts, replay, monitor, ASK_AGAIN_SECONDS)
  add_acting_actors(program, config, *parts, learner, replay, monitor)
  monitoring.add_evaluator(program, config, EVALUATOR, *parts, learner, monitor)
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns where each group runs: the learner on the accelerator, the rest on CPUs."""
  restart = places.restart_of_learner(config)
  learner = places.on_accelerator(config, 1 + max(config.learner_devices), restart=restart)
  actor = Resources(restart='on_failure', env=places.ONE_THREAD)
  return places.placement(replay=Resources(restart=restart), learner=learner, actor=actor)
