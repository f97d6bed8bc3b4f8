"""Peers that mix their parameters, and their placement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from agents.seeding import Seed
from launchers.placement import Resources
from launchers.program import Program
from nodes.gossip.options import GossipOptions
from nodes.learning.options import CompiledLoopOptions, TrainingOptions
from programs.options.gossip import BLOCKING, CompiledGossipConfig, GossipConfig
from programs.parts import default_placement
from programs.parts.launchpad_nodes import DataCourierNode, Deferred
from programs.parts.learner import run_options


def add_peers(
  program: Program,
  config: CompiledGossipConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  monitor: Any,
  call_timeout: float,
) -> list[Any]:
  """Adds the peers, each with handles on its successors.

  Args:
    program: the graph.
    config: the program's options.
    make_agent: takes the specs of observations and actions.
    make_environment: builds one environment, written in JAX.
    monitor: a handle on the monitor.
    call_timeout: deadline of a call in seconds.

  Returns:
    Handles on the peers.
  """
  nodes = [DataCourierNode(Deferred('nodes.gossip_peer', 'GossipPeer')) for _ in config.seeds]
  with program.group('peer', roles=['actor', 'learner'], sends={'parameters': 'learner'}):
    peers = [program.add_node(node) for node in nodes]
  for k, node in enumerate(nodes):
    peers[k].set_client_kwargs(call_timeout=call_timeout)
    gossip = gossip_options(config, k, config.seeds[0])
    loop = CompiledLoopOptions(
      num_envs=config.num_envs,
      num_devices=config.num_devices,
      updates_per_call=config.updates_per_call,
      run=dataclasses.replace(run_options(config), num_steps=config.steps_of(k), learner=k),
      seed=config.seeds[k],
      name=f'peer/{k}',
    )
    successors = [peers[other] for other in gossip.successors]
    node.configure(make_agent, make_environment, monitor, loop, gossip, successors)
  return peers


def gossip_options(config: GossipConfig, peer: int, params_seed: Seed) -> GossipOptions:
  """Returns the options of gossip of a peer."""
  return GossipOptions(
    peer=peer,
    graph=config.graph,
    mixing=config.mixing,
    blocking=config.gossip == BLOCKING,
    timeout=config.gossip_timeout,
    params_seed=params_seed,
  )


def training_of(config: GossipConfig, options: TrainingOptions, peer: int) -> TrainingOptions:
  """Returns the options of a learner as those of a peer, which trains apart from the others."""
  run = dataclasses.replace(options.run, num_steps=config.steps_of(peer), learner=peer)
  return dataclasses.replace(options, run=run, replica=0, num_replicas=1)


def connect(config: GossipConfig, nodes: Sequence[Any], seed: Seed, call_timeout: float) -> None:
  """Gives nodes that were made without it their options of gossip and handles on their successors.

  Args:
    config: the program's options.
    nodes: `ListeningCourierNode`s, one for each peer.
    seed: of the initial parameters.
    call_timeout: deadline of a call in seconds.
  """
  handles = [node.create_courier_handle() for node in nodes]
  for k, node in enumerate(nodes):
    handles[k].set_client_kwargs(call_timeout=call_timeout)
    gossip = gossip_options(config, k, seed)
    node.add_arguments(gossip=gossip, successors=[handles[other] for other in gossip.successors])


def placement(config: CompiledGossipConfig) -> dict[str, Resources]:
  """Returns the resources of the peers: an accelerator host each, or a CPU worker."""
  # A neighbour has the parameters of a peer that restarts without a checkpoint.
  restart = 'on_failure' if config.num_peers > 1 else default_placement.restart_of_learner(config)
  return {'peer': default_placement.on_accelerator(config, config.num_devices, restart=restart)}
