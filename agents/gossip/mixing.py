"""Rules by which a peer mixes its parameters with those that it receives.

Both rules are weighted means. They differ in the weights:

    average     The released rule of GALA (Assran et al. 2019): a peer with p predecessors gives its own
                parameters and each of theirs the weight 1/(p+1).
    push-sum    Kempe et al. 2003, "Gossip-based computation of aggregate information". A peer has a
                weight, at first 1. It sends part of it along with its parameters, and adds the weights
                that it receives to its own. The weights of all peers and messages sum to n.

Push-sum conserves the weighted sum of all parameters, whatever the graph and the order of messages.
The average conserves their mean only in synchronous rounds on graphs where every peer has as many
predecessors as successors, of the same number.

Functions take NumPy or JAX arrays and keep their dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agents.types import Array

_LEAST_SHARE = 1e-200  # Of a weight; far above where float64 becomes 0.


class Message(NamedTuple):
  """What a peer sends to a successor."""

  weight: float  # 1 in the average.
  params: Array  # `[D]`, of all parameters.


def weighted_mean(own: Array, weight: float, received: Sequence[Message]) -> tuple[Array, float]:
  """Returns the mean of a peer's parameters and those received, and the sum of the weights.

  This is push-sum's step of the receiver.

  Args:
    own: `[D]`.
    weight: of `own`, above 0.
    received: messages, any number.
  """
  total = weight + sum(message.weight for message in received)
  mixed = own * (weight / total)
  for message in received:
    mixed = mixed + message.params * (message.weight / total)
  return mixed, total


def average(own: Array, received: Sequence[Message], num_predecessors: int) -> Array:
  """Returns the released rule's mean.

  The share 1/(p+1) of a predecessor without a message stays with the peer's own parameters. With one
  predecessor, and in synchronous rounds, this is the released code's rule.

  Args:
    own: `[D]`.
    received: at most one message of each predecessor, of weight 1.
    num_predecessors: p.
  """
  missing = num_predecessors - len(received)
  return weighted_mean(own, 1.0 + missing, received)[0]


def split(weight: float, num_receivers: int, num_successors: int) -> tuple[float, float]:
  """Returns the weight that a peer of push-sum keeps, and that which it sends to each receiver.

  Each of s successors is due the share 1/(s+1); that of a successor which receives nothing stays. A
  share that float64 can hardly hold stays as well, so that a peer without predecessors keeps a weight.

  Args:
    weight: of the peer, above 0.
    num_receivers: successors that are sent a message now.
    num_successors: s.
  """
  share = weight / (num_successors + 1)
  if share < _LEAST_SHARE:
    return weight, 0.0
  return share * (num_successors + 1 - num_receivers), share
