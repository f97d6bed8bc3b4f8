"""Options of peers that mix parameters. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from agents.gossip import graphs
from agents.networks.config import require_choice
from agents.options import CheckedOptions, option

ASYNC, BLOCKING = 'async', 'blocking'
AVERAGE, PUSH_SUM = 'average', 'push_sum'


@dataclasses.dataclass(frozen=True)
class GossipOptions(CheckedOptions):
  """The peers: learners that train alone and mix their parameters along a graph."""

  num_peers: int = option(
    4,
    'actor-learners; each trains with environments of its own and an equal part of num_steps',
    at_least=1,
    at_most=1024,
  )
  gossip: str = option(
    ASYNC,
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

  @property
  def blocking(self) -> bool:
    """Whether a round waits for a message of every predecessor."""
    return self.gossip == BLOCKING

  def steps_of(self, peer: int, num_steps: int) -> int:
    """Returns the part of num_steps that a peer trains for."""
    return num_steps // self.num_peers + (peer < num_steps % self.num_peers)

  def _check(self) -> None:
    require_choice('gossip', self.gossip, (ASYNC, BLOCKING))
    require_choice('mixing', self.mixing, (AVERAGE, PUSH_SUM))
    graphs.graph(self.gossip_graph, self.num_peers)
    if not self.blocking and self.gossip_timeout != GossipOptions.gossip_timeout:
      raise ValueError(
        f'--gossip_timeout={self.gossip_timeout:g} has no effect with --gossip={self.gossip}, which '
        f'never waits; leave it out, or set --gossip={BLOCKING}.'
      )


class Peer(NamedTuple):
  """The place of a learner among those with which it mixes its parameters.

  Attributes:
    options: of gossip.
    number: of this peer, from 0.
    successors: Courier clients of the peers that it sends to, in the order of `options.graph`.
  """

  options: GossipOptions
  number: int
  successors: Sequence[Any]
