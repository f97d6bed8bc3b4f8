"""A population with environments on CPUs: members of Sebulba's parts.

Each of N members is an inference-learner with actors and replay of its own:

actor x M   --timesteps-->      member   <--unrolls, batches-->  replay
member x N  --report-->         leaderboard   (scores; the reply has the offspring to continue as)
evaluator   --get_variables-->  leaderboard   (of the best)
all nodes   --report-->         monitor

See `programs.population` for members under Anakin.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.ppo.config import PPOConfig
from agents.vtrace.config import VTraceConfig
from launchers.placement import Resources
from launchers.program import Program
from nodes.inference.options import GroupedActingOptions
from nodes.population.options import PopulationOptions
from nodes.runtime.options import RunOptions
from programs import sebulba
from programs.options.agent_choice import Variant
from programs.options.preset_choice import with_more_steps
from programs.options.queue import QueueOptions
from programs.options.separate_learners import SeparateLearnersConfig
from programs.parts import monitoring
from programs.parts import population as parts
from programs.parts.agent_constructors import make_agent
from programs.parts.central_inference import add_actors
from programs.parts.launchpad_nodes import Deferred
from programs.parts.replay import add_replay

environments = sebulba.environments
# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 120


@dataclasses.dataclass(frozen=True)
class Config(SeparateLearnersConfig):
  """The options of a population with central inference; its members are replicas."""

  run: RunOptions = RunOptions(agent='vtrace')
  acting: GroupedActingOptions = GroupedActingOptions(num_actors=1)
  replay: QueueOptions = QueueOptions()
  population: PopulationOptions = PopulationOptions()
  agent: Any = VTraceConfig()
  learners_flag = 'num_members'

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
    if self.acting.actor_python and self.evaluation.eval_envs:
      raise ValueError(
        f'--actor_python={self.acting.actor_python} is not for an evaluator that acts itself, with the '
        'parameters of the best member; set --eval_envs=0, or leave --actor_python out.'
      )


# A member has the steps of one alone, whose batches are large: offspring need hundreds of updates too.
PRESETS = with_more_steps(sebulba.PRESETS, 8)
AGENTS = {
  'vtrace': Variant(Config(), PRESETS),
  'ppo': Variant(Config(agent=PPOConfig()), with_more_steps(sebulba.PPO_PRESETS, 8)),
}


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  program = Program('population_sebulba')
  run, population = config.run, config.population
  make_environment = environments.maker(run.env, run.env_options)
  # Members need no more than the specs.
  describer = environments.describer(run.env, run.env_options, config.acting.actor_python)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT, population.num_members)
  leaderboard = parts.add_leaderboard(program, config, population, monitor, CALL_TIMEOUT)
  replay = add_replay(program, config, monitor)
  members = parts.add_inference_members(
    program, config, population, describer, replay, monitor, leaderboard
  )
  add_actors(program, config, make_environment, members, monitor)
  monitoring.add_evaluator(
    program,
    config,
    monitor,
    Deferred('nodes.evaluation.fetched', 'FetchingPlayer'),
    make_agent(config),
    make_environment,
    leaderboard,
    roles=['evaluator', 'inference'],
  )
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group: members on accelerators, the rest on CPUs."""
  placed = sebulba.placement(config)
  member = placed.pop('inference_learner')
  return placed | {'member': member, 'leaderboard': parts.LEADERBOARD}
