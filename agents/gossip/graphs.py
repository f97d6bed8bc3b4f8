"""Graphs along which peers send their parameters. Imports no JAX, since the launcher builds programs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator

_EDGE = re.compile(r'(\d+)-(\d+)')


@dataclasses.dataclass(frozen=True)
class Graph:
  """A directed graph of peers 0 .. n-1.

  Attributes:
    successors: for each peer, those that it sends to, in increasing order.
  """

  successors: tuple[tuple[int, ...], ...]

  @property
  def predecessors(self) -> tuple[tuple[int, ...], ...]:
    """For each peer, those that it receives from, in increasing order."""
    peers = range(len(self.successors))
    return tuple(tuple(i for i in peers if k in self.successors[i]) for k in peers)


def graph(spec: str, num_peers: int) -> Graph:
  """Returns the graph that --gossip_graph names.

  Args:
    spec: `ring`, in which peer i sends to peer i + 1; `full`, in which each sends to all others; or
      edges such as `0-1,1-2,2-0`, each from a sender to a receiver.
    num_peers: n, at least 1.

  Raises:
    ValueError: there is no such graph, or some peer does not reach all others; one sentence.
  """
  peers = range(num_peers)
  if spec == 'ring':
    return Graph(tuple(((k + 1) % num_peers,) * (num_peers > 1) for k in peers))
  if spec == 'full':
    return Graph(tuple(tuple(other for other in peers if other != k) for k in peers))
  edges = set(_edges(spec, num_peers))
  found = Graph(tuple(tuple(sorted(b for a, b in edges if a == k)) for k in peers))
  for towards, word in ((found.successors, 'reaches'), (found.predecessors, 'is reached by')):
    missing = set(peers) - _reached(towards)
    if missing:
      raise ValueError(
        f'--gossip_graph={spec}: peer 0 {word} all peers except {min(missing)}, so that their '
        'parameters would drift apart; add an edge.'
      )
  return found


def _edges(spec: str, num_peers: int) -> Iterator[tuple[int, int]]:
  for word in spec.split(','):
    match = _EDGE.fullmatch(word.strip())
    if not match:
      raise ValueError(
        f'--gossip_graph={spec} is unknown; there are: ring, full, and edges such as 0-1,1-2,2-0.'
      )
    sender, receiver = int(match[1]), int(match[2])
    if sender == receiver or max(sender, receiver) >= num_peers:
      raise ValueError(
        f'--gossip_graph={spec}: {match[0]} is not between two of the peers 0 to {num_peers - 1}; '
        'change it, or --num_peers.'
      )
    yield sender, receiver


def _reached(towards: Collection[Collection[int]]) -> set[int]:
  """Returns the peers that paths from peer 0 reach."""
  towards, reached, ahead = list(towards), {0}, [0]
  while ahead:
    new = set(towards[ahead.pop()]) - reached
    reached |= new
    ahead += new
  return reached
