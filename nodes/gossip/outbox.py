"""What a peer sends to one successor, without waiting for replies."""

from __future__ import annotations

import time
from concurrent import futures
from typing import Any

from absl import logging

from agents.gossip.mixing import Message
from nodes.gossip.mailbox import FINISHED, REFUSED

_RETRY_SECONDS = 0.1  # Between attempts to send a message that has failed.


class Outbox:
  """Sends messages to one successor, at most one at a time.

  A reliable outbox repeats a message until the successor has it, so each message arrives once and in
  order. An unreliable one forgets a message that has failed, since the next one replaces it.

  Attributes:
    finished: whether the successor takes no further messages, because it has finished training.
  """

  def __init__(self, client: Any, sender: int, incarnation: int, reliable: bool):
    """Initialises an outbox.

    Args:
      client: Courier client of the successor.
      sender: index of this peer.
      incarnation: of this peer.
      reliable: whether every message has to arrive.
    """
    self._client = client
    self._sender = sender
    self._incarnation = incarnation
    self._reliable = reliable
    self._sequence = 0
    self._message: Message | None = None
    self._pending: futures.Future | None = None
    self._leaving: futures.Future | None = None
    self._retry_at = 0.0
    self._returned: Message | None = None
    self.finished = False

  def is_idle(self, timeout: float = 0.0) -> bool:
    """Returns whether the next message may be sent; sends the last one again if that is due.

    Args:
      timeout: seconds to wait for the reply to the last message.
    """
    if self._pending is None:
      return True
    futures.wait([self._pending], timeout)
    if not self._pending.done():
      return False
    error = self._pending.exception()
    reply = REFUSED if error is not None else self._pending.result()
    if reply == FINISHED:
      self.finished, self._returned = True, self._message
    if reply != REFUSED or not self._reliable:
      self._pending = self._message = None
      return True
    if time.monotonic() >= self._retry_at:
      if error is not None:
        logging.warning('sending parameters again: %s', error)
      self._post()
    return False

  def take_returned(self) -> Message | None:
    """Returns the message that the successor has not kept because it has finished; None after that."""
    returned, self._returned = self._returned, None
    return returned

  def send(self, message: Message) -> None:
    """Sends a message; `is_idle` has returned True."""
    self._message = message
    self._sequence += 1
    self._post()

  def leave(self) -> None:
    """Tells the successor that this peer sends nothing more.

    If the call is lost, a blocking successor waits for its `gossip_timeout` once.
    """
    self._leaving = self._client.futures.leave(self._sender, self._incarnation, self._sequence)

  def close(self, timeout: float = 0.5) -> None:
    """Waits at most `timeout` seconds for a pending reply: the process may exit next."""
    pending = [call for call in (self._pending, self._leaving) if call is not None]
    if pending:
      futures.wait(pending, timeout)

  def _post(self) -> None:
    assert self._message is not None
    self._retry_at = time.monotonic() + _RETRY_SECONDS
    self._pending = self._client.futures.offer(
      self._sender, self._incarnation, self._sequence, *self._message
    )
