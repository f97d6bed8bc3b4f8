"""Options of a peer. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses

from agents.gossip.graphs import Graph
from agents.seeding import Seed

AVERAGE, PUSH_SUM = 'average', 'push_sum'


@dataclasses.dataclass(frozen=True)
class GossipOptions:
  """How a peer exchanges parameters with its neighbours.

  Attributes:
    peer: index of this peer.
    graph: of all peers.
    mixing: AVERAGE or PUSH_SUM; see `agents.gossip.mixing`.
    blocking: whether a round waits for a message of every predecessor.
    timeout: seconds for which a blocking round waits for a neighbour.
    params_seed: of the initial parameters, the same in all peers.
  """

  peer: int
  graph: Graph
  mixing: str
  blocking: bool
  timeout: float
  params_seed: Seed

  @property
  def successors(self) -> tuple[int, ...]:
    """Indices of the peers that it sends to."""
    return self.graph.successors[self.peer]

  @property
  def predecessors(self) -> tuple[int, ...]:
    """Indices of the peers that it receives from."""
    return self.graph.predecessors[self.peer]
