"""A peer's side of gossip: sends its parameters, receives those of others, and mixes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from agents.gossip import mixing
from agents.gossip.mixing import Message
from nodes.gossip.mailbox import Mailbox
from nodes.gossip.options import PUSH_SUM, GossipOptions
from nodes.gossip.outbox import Outbox
from nodes.runtime import lifecycle

_POLL_SECONDS = 0.05


class Exchange:
  """One round of gossip after each local update: send, receive, mix.

  The blocking form waits until each successor has the last message and each predecessor has sent one.
  It waits for a neighbour at most `timeout` seconds, then continues without it until that neighbour
  sends or confirms a message. The asynchronous form never waits: it skips a successor that has not
  confirmed the last message, and mixes the messages that have arrived.

  Attributes:
    mailbox: to be filled by the RPCs of predecessors.
    weight: of this peer in push-sum; 1 in the average.
  """

  def __init__(
    self, options: GossipOptions, peer: int, successors: Sequence[Any], incarnation: int
  ):
    """Initialises the exchange of one incarnation of a peer.

    Args:
      options: of gossip.
      peer: index of this peer.
      successors: Courier clients of the peers that it sends to, in the order of the options.
      incarnation: of this peer.
    """
    self._options = options
    self._successors = options.graph.successors[peer]
    self._predecessors = options.graph.predecessors[peer]
    self._push_sum = options.mixing == PUSH_SUM
    # Predecessors of a blocking peer are at most as many rounds ahead as there are peers.
    self.mailbox = Mailbox(
      self._predecessors,
      capacity=options.num_peers if options.blocking else 1,
      drops_oldest=not self._push_sum,
    )
    reliable = self._push_sum or options.blocking
    self._outboxes = [Outbox(client, peer, incarnation, reliable) for client in successors]
    self._away: set[str] = set()
    self.weight = 1.0
    self._sent = self._received = 0
    self._distance = 0.0

  def __call__(self, params: np.ndarray, should_stop: Callable[[], bool]) -> np.ndarray:
    """Does one round; returns the mixed parameters, or `params` itself if no message was there.

    Args:
      params: float32 `[D]`, after a local update; not changed.
      should_stop: polled while it waits.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
      ValueError: if the parameters of another peer have another shape; one sentence.
    """
    deadline = time.monotonic() + self._options.gossip_timeout
    if self._options.blocking:
      for receiver, outbox in zip(self._successors, self._outboxes, strict=True):
        self._wait(f'successor peer {receiver}', outbox.is_idle, deadline, should_stop)
    self._send(params)
    if self._options.blocking:
      for sender in self._predecessors:
        there = lambda timeout, s=sender: self.mailbox.wait(s, timeout)  # noqa: E731
        self._wait(f'predecessor peer {sender}', there, deadline, should_stop)
    messages = [self._take(sender, params) for sender in self._predecessors]
    params = self._taken_back(params)
    return self._mixed(params, [message for message in messages if message is not None])

  def leave(self) -> None:
    """Tells the neighbours that this peer has finished training."""
    self.mailbox.close()
    for outbox in self._outboxes:
      outbox.leave()

  def close(self) -> None:
    """Waits a moment for pending replies; see `Outbox.close`."""
    for outbox in self._outboxes:
      outbox.close()

  def measure(self) -> dict[str, float]:
    """Returns totals of this incarnation, and the distance to the last parameters received."""
    return {
      'gossip_sent': float(self._sent),
      'gossip_received': float(self._received),
      'gossip_distance': self._distance,
      'gossip_weight': self.weight,
      'gossip_neighbours_away': float(len(self._away)),
    }

  def _send(self, params: np.ndarray) -> None:
    ready = [outbox for outbox in self._outboxes if outbox.is_idle() and not outbox.finished]
    share = 1.0
    if self._push_sum:
      self.weight, share = mixing.split(self.weight, len(ready), len(self._outboxes))
    for outbox in ready:
      outbox.send(Message(share, params))
    self._sent += len(ready)

  def _take(self, sender: int, params: np.ndarray) -> Message | None:
    message = self.mailbox.take(sender)
    if message is not None:
      own, theirs = (f'{p.dtype}{list(p.shape)}' for p in (params, np.asarray(message.params)))
      if own != theirs:
        raise ValueError(
          f'peer {sender} has sent parameters {theirs}, and those of this peer are {own}; all peers '
          'need the same agent and options.'
        )
    return message

  def _taken_back(self, params: np.ndarray) -> np.ndarray:
    """Returns the parameters after push-sum has taken back what finished successors have not kept."""
    returned = [outbox.take_returned() for outbox in self._outboxes]
    messages = [message for message in returned if message is not None]
    if self._push_sum and messages:
      params, self.weight = mixing.weighted_mean(params, self.weight, messages)
    return params

  def _mixed(self, params: np.ndarray, received: Sequence[Message]) -> np.ndarray:
    if not received:
      return params
    self._received += len(received)
    self._distance = float(np.linalg.norm(received[-1].params - params))
    if self._push_sum:
      params, self.weight = mixing.weighted_mean(params, self.weight, received)
      return params
    return mixing.average(params, received, len(self._predecessors))

  def _wait(
    self,
    neighbour: str,
    is_ready: Callable[[float], bool],
    deadline: float,
    should_stop: Callable[[], bool],
  ) -> None:
    """Waits for a neighbour, unless it is away; from `deadline` on it is."""
    ready = is_ready(0.0)
    while not ready and neighbour not in self._away:
      if should_stop():
        raise lifecycle.Stopped
      if time.monotonic() >= deadline:
        self._away.add(neighbour)
        logging.warning('waited too long for %s: continuing without it', neighbour)
        return
      ready = is_ready(_POLL_SECONDS)
    if ready and neighbour in self._away:
      self._away.remove(neighbour)
      logging.info('%s is back', neighbour)
