"""Peers in one thread, and a network between them that loses, repeats and delays calls."""

from concurrent import futures

import numpy as np

from agents.gossip.mixing import Message
from nodes.gossip.exchange import Exchange
from nodes.gossip.options import ASYNC, BLOCKING, GossipOptions


class Network:
  """Carries calls between exchanges when the test says so.

  Attributes:
    exchanges: of all peers.
    calls: those under way, as (receiver, method, arguments, future), oldest first.
    is_instant: whether calls arrive at once.
  """

  def __init__(self, spec, n, mixing, blocking=False, timeout=0.0, is_instant=False):
    self._options = GossipOptions(
      num_peers=n,
      gossip=BLOCKING if blocking else ASYNC,
      mixing=mixing,
      gossip_graph=spec,
      gossip_timeout=timeout,
    )
    self.is_instant = is_instant
    self.calls = []
    self.exchanges = [None] * n
    for k in range(n):
      self.restart(k, incarnation=k)

  def restart(self, k, incarnation):
    """Begins an incarnation of a peer, whose mailbox is empty and whose weight is 1."""
    successors = [Client(self, receiver) for receiver in self._options.graph.successors[k]]
    self.exchanges[k] = Exchange(self._options, k, successors, incarnation)

  def step(self, k, params):
    """Lets a peer do a round; `params[k]` is replaced."""
    params[k] = self.exchanges[k](params[k].copy(), lambda: False)

  def deliver(self, call, reply=True):
    """Carries out a call; its caller gets the reply, or the error of a deadline."""
    receiver, method, args, future = call
    result = self._carry_out(receiver, method, args)
    if not future.done():
      future.set_result(result) if reply else self.lose(call)

  def lose(self, call):
    """Lets a call fail for its caller."""
    call[3].set_exception(TimeoutError('DEADLINE_EXCEEDED'))

  def _carry_out(self, receiver, method, args):
    mailbox = self.exchanges[receiver].mailbox
    if method == 'leave':
      return mailbox.leave(*args)
    sender, incarnation, sequence, weight, params = args
    return mailbox.put(sender, incarnation, sequence, Message(weight, np.array(params)))


class Client:
  """A client of a peer, in place of Courier's."""

  def __init__(self, network, receiver):
    self._network = network
    self._receiver = receiver
    self.futures = self

  def offer(self, *args):
    return self._call('offer', args)

  def leave(self, *args):
    return self._call('leave', args)

  def _call(self, method, args):
    call = (self._receiver, method, args, futures.Future())
    if self._network.is_instant:
      self._network.deliver(call)
    else:
      self._network.calls.append(call)
    return call[3]
