"""GALA (Assran et al. 2019): peers that act and learn alone, and mix their parameters along a graph.

peer x N   --offer-->        its successors, among the peers
evaluator  --get_params-->   peer/0
all nodes  --report-->       monitor

Each peer is Anakin's compiled loop.
"""

from __future__ import annotations

import dataclasses

import launchpad as lp

from agents.options import with_default
from environments import jax_registry as environments
from launchers.placement import Resources
from programs.options import compiled_presets as presets
from programs.options.agent_choice import WithVTrace
from programs.options.gossip import CompiledGossipConfig
from programs.parts import default_placement, monitoring
from programs.parts import peers as peer_nodes
from programs.parts.agent_constructors import make_agent
from programs.parts.launchpad_nodes import Deferred

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 30
# Peers reply at once to what they are sent, and fetch parameters at most for a limited time.
CYCLES = [{'peer'}]
PRESETS = presets.GALA


@dataclasses.dataclass(frozen=True)
class A2CConfig(WithVTrace):
  """Options of V-trace as A2C, which it is on fresh unrolls, with the values of GALA."""

  unroll_length: int = with_default(WithVTrace, 'unroll_length', 5)
  optimizer: str = with_default(WithVTrace, 'optimizer', 'rmsprop')
  learning_rate: float = with_default(WithVTrace, 'learning_rate', 7e-4)
  rmsprop_eps: float = with_default(WithVTrace, 'rmsprop_eps', 1e-5)
  rmsprop_eps_place: str = with_default(WithVTrace, 'rmsprop_eps_place', 'outside')
  # Of half the squared error; GALA has 0.5 of all of it.
  baseline_cost: float = with_default(WithVTrace, 'baseline_cost', 1.0)
  max_gradient_norm: float = with_default(WithVTrace, 'max_gradient_norm', 0.5)


@dataclasses.dataclass(frozen=True)
class Config(CompiledGossipConfig, A2CConfig):
  """The options of a run of GALA."""


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  program = lp.Program('gala')
  parts = make_agent(config), environments.maker(config.env, config.env_options)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT, config.num_peers)
  peers = peer_nodes.add_peers(program, config, *parts, monitor, CALL_TIMEOUT)
  evaluator = Deferred('nodes.anakin_evaluator', 'AnakinEvaluator')
  args = *parts, peers[0], monitor
  monitoring.add_evaluator(program, config, evaluator, *args, several=config.num_peers > 1)
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return default_placement.placement(**peer_nodes.placement(config))
