"""Anakin: environment, acting and learning in one compiled function on the accelerator host.

evaluator   --get_params-->   anakin
both        --report-->       monitor
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.anakin.limits import check_rows
from agents.options import with_default
from environments import jax_registry as environments
from launchers.placement import Resources
from nodes.learning.options import CompiledLoopOptions
from programs.options.agents import Variant, WithPPO, WithVTrace
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.preset_choice import OTHERS
from programs.options.presets import PENDULUM, PPO_CONTINUOUS, PPO_MINATAR, PPO_SMALL
from programs.parts import agents, default_placement, monitoring
from programs.parts.launchpad_nodes import Deferred
from programs.parts.learner import run_options

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 120
MINATAR = ('Asterix', 'Breakout', 'Freeway', 'Seaquest', 'SpaceInvaders')

# V-trace's options per family of environments; they override the defaults, and flags override them.
PRESETS = {
  OTHERS: {'num_steps': 1_500_000},
  'gymnax': {'learning_rate': 1e-3, 'num_steps': 2_000_000},
  'minatar': {'learning_rate': 1e-3, 'num_steps': 5_000_000},  # As Young and Tian 2019.
  'gymnax:Pendulum-v1': PENDULUM | {'num_envs': 32, 'updates_per_call': 25},
}
PPO_PRESETS = {
  OTHERS: PPO_SMALL | {'num_steps': 1_500_000},
  'gymnax': PPO_SMALL | {'num_steps': 2_000_000},
  'gymnax:Pendulum-v1': PPO_CONTINUOUS,
  'minatar': PPO_MINATAR,
  **{f'gymnax:{game}-MinAtar': PPO_MINATAR for game in MINATAR},
}


@dataclasses.dataclass(frozen=True)
class Config(CompiledLoopConfig, WithVTrace):
  """The options of an Anakin run with V-trace."""

  learning_rate: float = with_default(WithVTrace, 'learning_rate', 2e-3)

  def _check(self) -> None:
    check_rows(self.num_envs, self.unroll_length, self.updates_per_call)


@dataclasses.dataclass(frozen=True)
class PPO(CompiledLoopConfig, WithPPO):
  """The options of an Anakin run with PPO."""

  def _check(self) -> None:
    check_rows(self.num_envs, self.unroll_length, self.updates_per_call)


AGENTS = {'vtrace': Variant(Config, PRESETS), 'ppo': Variant(PPO, PPO_PRESETS)}


def make_agent(config: Config | PPO) -> Any:
  """Returns the agent's constructor: it takes the specs of observations and actions."""
  return agents.make_agent(config)


def make_program(config: Config | PPO) -> lp.Program:
  """Returns the program graph."""
  program = lp.Program('anakin')
  parts = make_agent(config), environments.maker(config.env, config.env_options)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT)
  options = CompiledLoopOptions(
    num_envs=config.num_envs,
    num_devices=config.num_devices,
    updates_per_call=config.updates_per_call,
    run=run_options(config),
    seed=config.root_seed.child('anakin'),
  )
  loop = lp.CourierNode(Deferred('nodes.anakin', 'Anakin'), *parts, monitor, options)
  anakin = program.add_node(loop, label='anakin')
  anakin.set_client_kwargs(call_timeout=CALL_TIMEOUT)
  evaluator = Deferred('nodes.anakin_evaluator', 'AnakinEvaluator')
  monitoring.add_evaluator(program, config, evaluator, *parts, anakin, monitor)
  return program


def placement(config: Config | PPO) -> dict[str, Resources]:
  """Returns the resources of each group: the loop on the accelerator, the rest on CPUs."""
  restart = default_placement.restart_of_learner(config)
  return default_placement.placement(
    anakin=default_placement.on_accelerator(config, config.num_devices, restart=restart)
  )
