"""Options of peers that mix their parameters."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from agents.gossip import graphs
from agents.networks.config import require_choice
from agents.options import option
from agents.seeding import Seed
from nodes.gossip.options import AVERAGE, PUSH_SUM
from programs.options.common import CommonConfig
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.inference import InferenceConfig

C = TypeVar('C', bound='CentralGossipConfig')
BLOCKING = 'blocking'


@dataclasses.dataclass(frozen=True)
class GossipConfig(CommonConfig):
  """Options of programs whose learners are peers: each trains alone and mixes parameters."""

  num_peers: int = option(
    4,
    'actor-learners; each trains with environments of its own and an equal part of num_steps',
    at_least=1,
    at_most=1024,
  )
  gossip: str = option(
    'async',
    'async: a peer never waits for another; blocking: a round waits for each neighbour, at most '
    '--gossip_timeout; GALA has both',
  )
  mixing: str = option(
    AVERAGE,
    'average: the mean with what predecessors have sent, as released with GALA; push_sum: weighted, '
    'so that the sum over all peers is conserved in any order of messages and any graph',
  )
  gossip_graph: str = option(
    'ring',
    'the successors of each peer: ring, where peer i sends to peer i + 1; full, where each sends to all '
    'others; or edges from sender to receiver, such as 0-1,1-2,2-0; GALA: ring',
  )
  gossip_timeout: float = option(
    60.0,
    'seconds that a blocking round waits for a neighbour; then the peer continues without this '
    'neighbour until a message from it arrives',
    at_least=0,
  )

  @property
  def graph(self) -> graphs.Graph:
    """The graph along which peers send their parameters."""
    return graphs.graph(self.gossip_graph, self.num_peers)

  def steps_of(self, peer: int) -> int:
    """Returns the part of num_steps that a peer trains for."""
    return self.num_steps // self.num_peers + (peer < self.num_steps % self.num_peers)

  def _check(self) -> None:
    require_choice('gossip', self.gossip, ('async', BLOCKING))
    require_choice('mixing', self.mixing, (AVERAGE, PUSH_SUM))
    if self.num_steps < self.num_peers:
      raise ValueError(
        f'--num_steps={self.num_steps} leaves some of --num_peers={self.num_peers} nothing to do; raise '
        'it.'
      )
    graphs.graph(self.gossip_graph, self.num_peers)
    if self.gossip != BLOCKING and self.gossip_timeout != GossipConfig.gossip_timeout:
      raise ValueError(
        f'--gossip_timeout={self.gossip_timeout:g} has no effect with --gossip={self.gossip}, which '
        f'never waits; leave it out, or set --gossip={BLOCKING}.'
      )


@dataclasses.dataclass(frozen=True)
class CompiledGossipConfig(GossipConfig, CompiledLoopConfig):
  """Options of peers that are compiled loops."""

  num_envs: int = option(
    16,
    'environments of each peer, over all of its devices; a learner batch is one unroll of each; '
    'GALA: 16',
    at_least=1,
  )
  updates_per_call: int = option(
    1,
    'learner steps of a peer between two rounds of gossip; reports, checkpoints and stops happen there '
    'too; GALA: 1',
    at_least=1,
  )

  @property
  def seeds(self) -> tuple[Seed, ...]:
    """The seed of each peer; that of the first is Anakin's."""
    others = (self.root_seed.child('peer', k) for k in range(1, self.num_peers))
    return (self.root_seed.child('anakin'), *others)

  @property
  def num_loops(self) -> int:
    """Number of compiled loops that share num_steps."""
    return self.num_peers


@dataclasses.dataclass(frozen=True)
class CentralGossipConfig(GossipConfig, InferenceConfig):
  """Options of peers with central inference: each is a replica that averages no gradients."""

  def resolve(self: C) -> C:
    """Returns the config with a replica for each peer, and every 'choose for me' replaced."""
    replicas = self.num_peers if self.num_replicas == 1 else self.num_replicas
    return dataclasses.replace(super().resolve(), num_replicas=replicas)

  def _check(self) -> None:
    if self.num_replicas != self.num_peers:
      raise ValueError(
        f'--num_replicas={self.num_replicas} is for learners that average gradients; leave it out: '
        f'each of --num_peers={self.num_peers} is a learner.'
      )

  def _validate_inference_nodes(self) -> None:
    raise ValueError(
      f'--inference_nodes={self.inference_nodes} is for a single learner, and there are --num_peers='
      f'{self.num_peers}; leave it out.'
    )
