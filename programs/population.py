"""Population: learners that train alone, of which the worse continue as offspring of the better.

member x N   --report-->      leaderboard   (scores; the reply has the offspring to continue as)
evaluator    --get_params-->  leaderboard   (of the best)
all nodes    --report-->      monitor

Each member is Anakin's compiled loop. Options of the agent that --tune names are part of the members'
learner states, so offspring have other values of them and nothing is compiled again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp
from acme import specs

from agents.ppo.config import PPOConfig
from agents.r2d2.config import R2D2Config
from agents.turns import TurnActions
from agents.vtrace.config import VTraceConfig
from environments import jax_registry as environments
from launchers.placement import Resources
from launchers.program import Program
from nodes.learning.options import LoopOptions
from nodes.population.options import PopulationOptions
from nodes.runtime.options import RunOptions
from programs.options import compiled_presets as presets
from programs.options.agent_choice import Variant
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.compiled_replay import RingOptions
from programs.parts import default_placement, monitoring
from programs.parts import population as parts
from programs.parts.agent_constructors import make_agent
from programs.parts.launchpad_nodes import Deferred

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 120


@dataclasses.dataclass(frozen=True)
class Config(CompiledLoopConfig):
  """The options of a population, of V-trace unless `AGENTS` says otherwise."""

  run: RunOptions = RunOptions(agent='vtrace')
  loop: LoopOptions = LoopOptions(num_envs=16)
  population: PopulationOptions = PopulationOptions()
  agent: Any = VTraceConfig()

  @property
  def num_learners(self) -> int:
    """The members, which share num_steps."""
    return self.population.num_members

  def resolve(self) -> Config:
    """Returns the config with every 'choose for me' replaced by the choice."""
    found = super().resolve()
    population = found.population.resolve(found.run.num_steps)
    return dataclasses.replace(found, population=population)

  def _check(self) -> None:
    if self.agent is not None:
      parts.check(self, self.population)


_R2D2 = Config(
  loop=LoopOptions(num_envs=32),
  replay=RingOptions(),
  population=PopulationOptions(tune='learning_rate=1e-5..1e-2'),
  agent=R2D2Config(),
)
PRESETS = presets.POPULATION_VTRACE
AGENTS = {
  'vtrace': Variant(Config(), PRESETS),
  'ppo': Variant(Config(agent=PPOConfig()), presets.POPULATION_PPO),
  'r2d2': Variant(_R2D2, presets.POPULATION_R2D2),
}


def check_spec(env: str, spec: specs.EnvironmentSpec) -> None:
  """Checks that the returns of training compare members.

  Args:
    env: name of the environment.
    spec: its specs.

  Raises:
    ValueError: one sentence.
  """
  if isinstance(spec.actions, TurnActions):
    raise ValueError(
      f'--env={env} is played against itself in training, and such returns say nothing about how well a '
      'member plays: use --program=anakin.'
    )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  members = config.population.num_members
  program = Program('population')
  make_environment = environments.maker(config.run.env, config.run.env_options)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT, members)
  leaderboard = parts.add_leaderboard(program, config, config.population, monitor, CALL_TIMEOUT)
  parts.add_members(program, config, config.population, make_environment, monitor, leaderboard)
  monitoring.add_evaluator(
    program,
    config,
    monitor,
    Deferred('nodes.evaluation.compiled', 'CompiledPlayer'),
    make_agent(config),
    make_environment,
    leaderboard,
    monitor if members > 1 else None,
    roles=['evaluator', 'inference'],
  )
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  member = default_placement.on_accelerator(config, config.loop.num_devices, restart='on_failure')
  return default_placement.placement(member=member, leaderboard=parts.LEADERBOARD)
