"""GALA (Assran et al. 2019) with environments on CPUs: peers of Sebulba's parts.

Each of N peers is an inference-learner with actors and replay of its own:

actor x M         --timesteps-->  inference_learner  <--unrolls, batches-->  replay
inference_learner --offer-->      its successors, among the inference-learners
evaluator         --timesteps-->  inference_learner/0

See `programs.gala` for peers under Anakin.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from launchers.placement import Resources
from nodes.gossip.options import GossipOptions
from nodes.inference.options import GroupedActingOptions
from nodes.runtime.options import RunOptions
from programs import gala, sebulba
from programs.options.preset_choice import OTHERS
from programs.options.queue import QueueOptions
from programs.options.separate_learners import SeparateLearnersConfig
from programs.parts import peers as peer_nodes
from programs.parts.agent_constructors import make_agent

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
class Config(SeparateLearnersConfig):
  """The options of a run of GALA with central inference; its peers are replicas."""

  run: RunOptions = RunOptions(agent='vtrace')
  acting: GroupedActingOptions = GroupedActingOptions(num_actors=1, envs_per_actor=16, env_groups=1)
  replay: QueueOptions = QueueOptions()
  gossip: GossipOptions = GossipOptions()
  agent: Any = gala.A2C

  learners_flag = 'num_peers'

  @property
  def num_learners(self) -> int:
    """The peers, which share num_steps."""
    return self.gossip.num_peers

  def _check(self) -> None:
    peer_nodes.check_steps(self.run, self.gossip)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph('gala_sebulba', config, make_agent(config), gossip=config.gossip)


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return sebulba.placement(config)
