"""Anakin: environment, acting and learning in one compiled function on the accelerator host.

evaluator   --get_params-->   anakin
both        --report-->       monitor
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.options import with_default
from environments import jax_registry as environments
from launchers.placement import Resources
from nodes.learning.options import CompiledLoopOptions
from programs.options import compiled_presets as presets
from programs.options.agent_choice import Variant, WithMuZero, WithPPO, WithR2D2, WithVTrace
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.compiled_replay import CompiledReplayConfig
from programs.parts import default_placement, monitoring
from programs.parts.agent_constructors import make_agent
from programs.parts.launchpad_nodes import DataCourierNode, Deferred
from programs.parts.learner import run_options

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 120


@dataclasses.dataclass(frozen=True)
class Config(CompiledLoopConfig, WithVTrace):
  """The options of an Anakin run with V-trace."""

  learning_rate: float = with_default(WithVTrace, 'learning_rate', 2e-3)


@dataclasses.dataclass(frozen=True)
class PPOConfig(CompiledLoopConfig, WithPPO):
  """The options of an Anakin run with PPO."""


@dataclasses.dataclass(frozen=True)
class R2D2Config(CompiledReplayConfig, WithR2D2):
  """The options of an Anakin run with R2D2."""


@dataclasses.dataclass(frozen=True)
class MuZeroConfig(CompiledReplayConfig, WithMuZero):
  """The options of an Anakin run with MuZero."""

  priority_exponent: float = with_default(CompiledReplayConfig, 'priority_exponent', 1.0)

  def _check(self) -> None:
    self.check_parts(self.batch_size, self.known_devices, 'device(s)')


AnyConfig = Config | PPOConfig | R2D2Config | MuZeroConfig
PRESETS = presets.VTRACE
AGENTS = {
  'vtrace': Variant(Config, PRESETS),
  'ppo': Variant(PPOConfig, presets.PPO),
  'r2d2': Variant(R2D2Config, presets.R2D2),
  'muzero': Variant(MuZeroConfig, presets.MUZERO),
}


def make_program(config: AnyConfig) -> lp.Program:
  """Returns the program graph."""
  return make_graph('anakin', config, make_agent(config))


def make_graph(name: str, config: CompiledLoopConfig, make_agent: Any) -> lp.Program:
  """Returns Anakin's graph with the given agent.

  Args:
    name: the program's name.
    config: resolved and validated.
    make_agent: takes the specs of observations and actions.
  """
  program = lp.Program(name)
  parts = make_agent, environments.maker(config.env, config.env_options)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT)
  options = CompiledLoopOptions(
    num_envs=config.num_envs,
    num_devices=config.num_devices,
    updates_per_call=config.updates_per_call,
    run=run_options(config),
    seed=config.root_seed.child('anakin'),
    rings=config.rings,
  )
  loop = DataCourierNode(Deferred('nodes.anakin', 'Anakin'), *parts, monitor, options)
  anakin = program.add_node(loop, label='anakin')
  anakin.set_client_kwargs(call_timeout=CALL_TIMEOUT)
  evaluator = Deferred('nodes.anakin_evaluator', 'AnakinEvaluator')
  monitoring.add_evaluator(program, config, evaluator, *parts, anakin, monitor)
  return program


def placement(config: CompiledLoopConfig) -> dict[str, Resources]:
  """Returns the resources of each group: the loop on the accelerator, the rest on CPUs."""
  restart = default_placement.restart_of_learner(config)
  return default_placement.placement(
    anakin=default_placement.on_accelerator(config, config.num_devices, restart=restart)
  )
