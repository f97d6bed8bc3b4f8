"""GALA (Assran et al. 2019) with environments on CPUs: peers of Sebulba's parts.

Each of N peers is an inference-learner with actors and replay of its own:

actor x M         --timesteps-->  inference_learner  <--unrolls, batches-->  replay
inference_learner --offer-->      its successors, among the inference-learners
evaluator         --timesteps-->  inference_learner/0

See `programs.gala` for peers under Anakin.
"""

from __future__ import annotations

import dataclasses

import launchpad as lp

from agents.options import with_default
from launchers.placement import Resources
from programs import gala, sebulba
from programs.options.actors import ActorsConfig
from programs.options.gossip import CentralGossipConfig
from programs.options.inference import InferenceConfig
from programs.options.preset_choice import OTHERS
from programs.options.queue import QueueConfig
from programs.parts.agent_constructors import make_agent
from programs.parts.replay import make_queue

environments = sebulba.environments
# Peers reply at once to what they are sent.
CYCLES = [{'inference_learner'}]
PRESETS = {
  'atari': {'frame_stack': 4, 'max_abs_reward': 1.0, 'num_steps': 10_000_000},
  'catch': {'num_steps': 300_000},
  'minatar': {'num_steps': 5_000_000},
  OTHERS: {'num_steps': 1_000_000},
}


@dataclasses.dataclass(frozen=True)
class Config(CentralGossipConfig, QueueConfig, gala.A2CConfig):
  """The options of a run of GALA with central inference."""

  num_actors: int = with_default(ActorsConfig, 'num_actors', 1)
  envs_per_actor: int = with_default(ActorsConfig, 'envs_per_actor', 16)
  env_groups: int = with_default(InferenceConfig, 'env_groups', 1)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph('gala_sebulba', config, make_agent(config), make_queue(config))


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return sebulba.placement(config)
