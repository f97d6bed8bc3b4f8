"""Anakin: environment, acting and learning in one compiled function on the accelerator host.

evaluator   --get_params-->   anakin
both        --report-->       monitor
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import launchpad as lp

from agents.anakin.limits import check_rows
from agents.options import option
from agents.vtrace.config import VTraceConfig
from environments import jax_registry as environments
from launchers.placement import Resources
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.configs import OTHERS
from programs.options.presets import PENDULUM
from programs.parts import monitoring, places
from programs.parts.compiled_loop import add_compiled_loop
from programs.parts.deferred import Deferred

# An evaluator asks again after this long; see nodes.runtime.rpc.
ASK_AGAIN_SECONDS = 120

# Options that suit a family of environments better than the defaults; flags override them.
PRESETS = {
  OTHERS: {'num_steps': 1_500_000},
  'gymnax': {'learning_rate': 1e-3, 'num_steps': 2_000_000},
  'gymnax:Pendulum-v1': PENDULUM | {'num_envs': 32, 'updates_per_call': 25},
}


@dataclasses.dataclass(frozen=True)
class Config(CompiledLoopConfig, VTraceConfig):
  """Everything an Anakin run can be told."""

  learning_rate: float = option(2e-3, 'Step size at the first update; IMPALA on Atari: 6e-4.')

  def validate(self) -> None:
    """Checks that the options fit together; raises ValueError, one sentence naming the flag."""
    super().validate()
    VTraceConfig.validate(self)
    check_rows(self.num_envs, self.unroll_length, self.updates_per_call)


def make_agent(config: Config) -> Any:
  """Returns what takes the specs of observations and actions and returns the agent."""
  # Without the run directory, so that whoever looks for those that write to it finds the right ones.
  config = dataclasses.replace(config, run_dir='')
  return functools.partial(Deferred('agents.vtrace.agent', 'VTrace'), config)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  parts = make_agent(config), environments.maker(config.env, config.env_options)
  program = lp.Program('anakin')
  monitor = monitoring.add_monitor(program, config, ASK_AGAIN_SECONDS)
  anakin = add_compiled_loop(program, config, *parts, monitor, ASK_AGAIN_SECONDS)
  evaluator = Deferred('nodes.anakin_evaluator', 'AnakinEvaluator')
  monitoring.add_evaluator(program, config, evaluator, *parts, anakin, monitor)
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns where each group runs: the loop on the accelerator, the rest on CPUs."""
  restart = places.restart_of_learner(config)
  return places.placement(anakin=places.on_accelerator(config, config.num_devices, restart=restart))
