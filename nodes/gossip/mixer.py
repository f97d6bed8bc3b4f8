"""Mixes the parameters of a learner with those of its neighbours: a round after each local update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from absl import logging

from agents.gossip.mixing import Message
from agents.types import Nest
from nodes.gossip import vector
from nodes.gossip.exchange import Exchange
from nodes.gossip.options import Peer
from nodes.runtime import activity, lifecycle

_FETCH_SECONDS = 60.0  # For the parameters of one neighbour.


class Mixer:
  """Makes a learner a peer of gossip-based actor-learners (Assran et al. 2019).

  Only parameters are mixed: the optimizer's state is the peer's own. A node with a mixer offers `offer`
  and `leave` as RPCs of its own, which its predecessors call.
  """

  def __init__(self, peer: Peer):
    """Initialises the mixer of one incarnation of a peer."""
    self._successors = peer.successors
    self._exchange = Exchange(
      peer.options, peer.number, peer.successors, lifecycle.new_incarnation()
    )

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

  def mix(self, params: Nest, should_stop: Callable[[], bool]) -> Nest:
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

  def fetch_params(self) -> tuple[dict[str, int], Any] | None:
    """Returns what the first successor that replies has as `get_params`; None if none replies."""
    for client in self._successors:
      with activity.doing(activity.WAITING_FOR_PARAMETERS):
        try:
          found = client.futures.get_params().result(timeout=_FETCH_SECONDS)
        except Exception as error:  # Courier has many.
          logging.warning('could not fetch parameters from a neighbour: %s', error)
          continue
      if found is not None:
        logging.info('starting with the parameters of a neighbour: %s', found[0])
        return found
    return None

  def measure(self) -> dict[str, float]:
    """Returns what the peer reports about its rounds; see `Exchange.measure`."""
    return self._exchange.measure()

  def finish(self) -> None:
    """Tells the neighbours that this peer has finished training."""
    self._exchange.leave()

  def close(self) -> None:
    """Waits a moment for pending replies."""
    self._exchange.close()
