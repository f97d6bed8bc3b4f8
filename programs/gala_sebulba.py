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
from programs.options.inference import InferenceConfig
from programs.options.preset_choice import OTHERS
from programs.options.queue import QueueOptions
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
class Config(InferenceConfig):
  """The options of a run of GALA with central inference; its peers are replicas."""

  run: RunOptions = RunOptions(agent='vtrace')
  acting: GroupedActingOptions = GroupedActingOptions(num_actors=1, envs_per_actor=16, env_groups=1)
  replay: QueueOptions = QueueOptions()
  gossip: GossipOptions = GossipOptions()
  agent: Any = gala.A2C

  @property
  def forms_one_job(self) -> bool:
    """Whether the inference-learners are several replicas of one JAX job, which peers are not."""
    return False

  def resolve(self) -> Config:
    """Returns the config with a replica for each peer, and every 'choose for me' replaced."""
    found = super().resolve()
    given = found.inference.num_replicas
    replicas = self.gossip.num_peers if given == 1 else given
    inference = dataclasses.replace(found.inference, num_replicas=replicas)
    return dataclasses.replace(found, inference=inference)

  def _check(self) -> None:
    peer_nodes.check_steps(self.run, self.gossip)
    if self.num_replicas != self.gossip.num_peers:
      raise ValueError(
        f'--num_replicas={self.num_replicas} is for learners that average gradients; leave it out: '
        f'each of --num_peers={self.gossip.num_peers} is a learner.'
      )

  def _check_inference_nodes(self) -> None:
    raise ValueError(
      f'--inference_nodes={self.inference.inference_nodes} is for a single learner, and there are '
      f'--num_peers={self.gossip.num_peers}; leave it out.'
    )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph('gala_sebulba', config, make_agent(config), gossip=config.gossip)


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return sebulba.placement(config)
