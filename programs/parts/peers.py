"""Peers that mix their parameters, and their placement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from launchers.placement import Resources
from launchers.program import Program
from nodes.gossip.options import GossipOptions, Peer
from nodes.learning.options import TrainingOptions
from nodes.runtime.options import RunOptions
from programs.options.compiled_loop import CompiledLoopConfig
from programs.parts import default_placement
from programs.parts.launchpad_nodes import DataCourierNode, Deferred


def check_steps(run: RunOptions, gossip: GossipOptions) -> None:
  """Raises ValueError, one sentence, unless each peer has steps to do."""
  if run.num_steps < gossip.num_peers:
    raise ValueError(
      f'--num_steps={run.num_steps} leaves some of --num_peers={gossip.num_peers} nothing to do; raise '
      'it.'
    )


def add_peers(
  program: Program,
  config: CompiledLoopConfig,
  gossip: GossipOptions,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  monitor: Any,
  call_timeout: float,
) -> list[Any]:
  """Adds the peers, each with handles on its successors.

  Args:
    program: the graph.
    config: the program's options.
    gossip: how the peers mix.
    make_agent: takes the specs of observations and actions.
    make_environment: builds one environment, written in JAX.
    monitor: a handle on the monitor.
    call_timeout: deadline of a call in seconds.

  Returns:
    Handles on the peers.
  """
  others = [config.root_seed.child('peer', k) for k in range(1, gossip.num_peers)]
  seeds = [config.root_seed.child('anakin'), *others]  # The first one's is Anakin's.
  nodes = [DataCourierNode(Deferred('nodes.anakin', 'Anakin')) for _ in seeds]
  with program.group('peer', roles=['actor', 'learner'], sends={'parameters': 'learner'}):
    handles = [program.add_node(node) for node in nodes]
  for k, peer in enumerate(_peers(gossip, handles, call_timeout)):
    nodes[k].configure(
      make_agent,
      make_environment,
      monitor,
      config.loop,
      _run_of(config.run, gossip, k),
      seed=seeds[k],
      name=f'peer/{k}',
      peer=peer,
      params_seed=seeds[0],
    )
  return handles


def training_of(gossip: GossipOptions, options: TrainingOptions, peer: int) -> TrainingOptions:
  """Returns the options of a learner as those of a peer, which trains apart from the others."""
  run = _run_of(options.run, gossip, peer)
  return dataclasses.replace(options, run=run, learner=peer, replica=0, num_replicas=1)


def _run_of(run: RunOptions, gossip: GossipOptions, peer: int) -> RunOptions:
  """Returns the options of a run with the part of num_steps that a peer trains for."""
  return dataclasses.replace(run, num_steps=gossip.steps_of(peer, run.num_steps))


def connect(gossip: GossipOptions, nodes: Sequence[Any], call_timeout: float) -> None:
  """Makes nodes peers of each other, by handles on their successors.

  Args:
    gossip: how the peers mix.
    nodes: `ListeningCourierNode`s, one for each peer.
    call_timeout: deadline of a call in seconds.
  """
  handles = [node.create_courier_handle() for node in nodes]
  for node, peer in zip(nodes, _peers(gossip, handles, call_timeout), strict=True):
    node.add_arguments(peer=peer)


def _peers(gossip: GossipOptions, handles: Sequence[Any], call_timeout: float) -> list[Peer]:
  """Returns the place of each peer, given handles on all of them, and sets the deadline of calls."""
  for handle in handles:
    handle.set_client_kwargs(call_timeout=call_timeout)
  return [
    Peer(gossip, k, [handles[other] for other in successors])
    for k, successors in enumerate(gossip.graph.successors)
  ]


def placement(config: CompiledLoopConfig, gossip: GossipOptions) -> dict[str, Resources]:
  """Returns the resources of the peers: an accelerator host each, or a CPU worker."""
  # A neighbour has the parameters of a peer that restarts without a checkpoint.
  several = gossip.num_peers > 1
  restart = 'on_failure' if several else default_placement.restart_of_learner(config)
  devices = config.loop.num_devices
  return {'peer': default_placement.on_accelerator(config, devices, restart=restart)}
