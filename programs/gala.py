"""GALA (Assran et al. 2019): peers that act and learn alone, and mix their parameters along a graph.

peer x N   --offer-->        its successors, among the peers
evaluator  --get_params-->   peer/0
all nodes  --report-->       monitor

Each peer is Anakin's compiled loop.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.vtrace.config import VTraceConfig
from environments import jax_registry as environments
from launchers.placement import Resources
from launchers.program import Program
from nodes.gossip.options import GossipOptions
from nodes.learning.options import PeerLoopOptions
from nodes.runtime.options import RunOptions
from programs.options import compiled_presets as presets
from programs.options.compiled_loop import CompiledLoopConfig
from programs.parts import default_placement, monitoring
from programs.parts import peers as peer_nodes
from programs.parts.agent_constructors import make_agent
from programs.parts.launchpad_nodes import Deferred

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 30
# Peers reply at once to what they are sent, and fetch parameters at most for a limited time.
CYCLES = [{'peer'}]
PRESETS = presets.GALA


# V-trace as A2C, which it is on fresh unrolls, with the values of GALA.
A2C = VTraceConfig(
  unroll_length=5,
  optimizer='rmsprop',
  learning_rate=7e-4,
  rmsprop_eps=1e-5,
  rmsprop_eps_place='outside',
  baseline_cost=1.0,  # Of half the squared error; GALA has 0.5 of all of it.
  max_gradient_norm=0.5,
)


@dataclasses.dataclass(frozen=True)
class Config(CompiledLoopConfig):
  """The options of a run of GALA."""

  run: RunOptions = RunOptions(agent='vtrace')
  loop: PeerLoopOptions = PeerLoopOptions()
  gossip: GossipOptions = GossipOptions()
  agent: Any = A2C

  @property
  def num_learners(self) -> int:
    """The peers, which share num_steps."""
    return self.gossip.num_peers

  def _check(self) -> None:
    peer_nodes.check_steps(self.run, self.gossip)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  num_peers = config.gossip.num_peers
  program = Program('gala')
  parts = make_agent(config), environments.maker(config.run.env, config.run.env_options)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT, num_peers)
  peers = peer_nodes.add_peers(program, config, config.gossip, *parts, monitor, CALL_TIMEOUT)
  monitoring.add_evaluator(
    program,
    config,
    monitor,
    Deferred('nodes.evaluation.compiled', 'CompiledPlayer'),
    *parts,
    peers[0],
    monitor if num_peers > 1 else None,
    roles=['evaluator', 'inference'],
    receives={'parameters': 'learner'},
  )
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return default_placement.placement(**peer_nodes.placement(config, config.gossip))
