"""Sebulba: central inference and V-trace learner on the accelerator host, a queue between them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import launchpad as lp

from agents.vtrace.config import VTraceConfig
from programs import actor_learner
from programs.options.configs import OTHERS
from programs.options.inference import InferenceConfig
from programs.options.presets import PENDULUM
from programs.options.queue import QueueConfig
from programs.parts.deferred import Deferred
from programs.parts.replay import make_queue

placement = actor_learner.placement
environments = actor_learner.environments

# Options that suit a family of environments better than the defaults; flags override them.
PRESETS = {
  # Espeholt et al. 2018, table G.1, but for Adam and losses that are means over transitions.
  'atari': {'frame_stack': 4, 'max_abs_reward': 1.0, 'batch_size': 32, 'num_steps': 10_000_000},
  'catch': {'num_steps': 300_000},
  'gymnasium:Pendulum-v1': PENDULUM | {'batch_size': 32},
  OTHERS: {'num_steps': 1_000_000},
}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig, QueueConfig, VTraceConfig):
  """Everything a Sebulba run can be told."""

  def validate(self) -> None:
    """Checks that the options fit together; raises ValueError, one sentence naming the flag."""
    super().validate()
    VTraceConfig.validate(self)


def make_agent(config: VTraceConfig) -> Any:
  """Returns what takes the specs of observations and actions and returns the agent."""
  return functools.partial(Deferred('agents.vtrace.agent', 'VTrace'), config)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return actor_learner.make_program('sebulba', config, make_agent(config), make_queue(config))
