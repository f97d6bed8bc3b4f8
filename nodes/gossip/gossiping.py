"""The half of a peer that gossips: its RPCs, and a round between two local updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agents.gossip.mixing import Message
from agents.types import Nest
from nodes.gossip import vector
from nodes.gossip.exchange import Exchange
from nodes.gossip.options import GossipOptions
from nodes.runtime import activity, lifecycle


class Gossiping:
  """Base class of nodes that mix their parameters with those of their neighbours.

  Only parameters are mixed: the optimizer's state is the peer's own.
  """

  def __init__(self, gossip: GossipOptions, peer: int, successors: Sequence[Any]):
    """Initialises an incarnation of a peer.

    Args:
      gossip: options of gossip.
      peer: index of this peer.
      successors: Courier clients of the peers that it sends to, in the order of `gossip`.
    """
    self._successors = successors
    self._exchange = Exchange(gossip, peer, successors, lifecycle.new_incarnation())

  def offer(
    self, sender: int, incarnation: int, sequence: int, weight: float, params: np.ndarray
  ) -> int:
    """Keeps a message of a predecessor until the next round. An RPC; it never waits.

    Args:
      sender: index of the predecessor.
      incarnation: the sender's.
      sequence: number of the message.
      weight: of the message; see `agents.gossip.mixing`.
      params: float32 `[D]`.

    Returns:
      As `nodes.gossip.mailbox.Mailbox.put`.
    """
    return self._exchange.mailbox.put(sender, incarnation, sequence, Message(weight, params))

  def leave(self, sender: int, incarnation: int, last: int) -> None:
    """Notes that a predecessor has finished training. An RPC; see `Mailbox.leave`."""
    self._exchange.mailbox.leave(sender, incarnation, last)

  def _mixed(self, params: Nest, should_stop: Callable[[], bool]) -> Nest:
    """Does a round; returns the mixed parameters, or `params` itself if none were received.

    Args:
      params: on devices, after a local update.
      should_stop: polled while a blocking round waits.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """
    if not self._successors:
      return params
    own = vector.flatten(params)
    with activity.doing(activity.WAITING_FOR_PEERS):
      mixed = self._exchange(own, should_stop)
    return params if mixed is own else vector.unflatten(mixed, params)
