"""A peer's mailbox: what its predecessors have sent and it has not yet mixed."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Iterable

from agents.gossip.mixing import Message

# Replies to a message: its sender may send it again; it is here; no further message is of use.
REFUSED, KEPT, FINISHED = 0, 1, 2


@dataclasses.dataclass
class _Sender:
  """What is known of one predecessor: its current incarnation, and its messages, oldest first."""

  incarnation: int | None = None
  sequence: int = 0  # Of the newest message; the first is 1.
  last: int | None = None  # Sequence number of its last message, if it has finished training.
  retired: set[int] = dataclasses.field(default_factory=set)
  messages: collections.deque[Message] = dataclasses.field(default_factory=collections.deque)


class Mailbox:
  """Keeps the messages of each predecessor. Thread-safe; `put` never waits.

  A message is named by its sender's incarnation and a sequence number, so a repeated or late message
  changes nothing. Once the mailbox is closed, because its peer has finished training, it keeps no
  message.
  """

  def __init__(self, senders: Iterable[int], capacity: int, drops_oldest: bool):
    """Initialises an empty mailbox.

    Args:
      senders: the predecessors.
      capacity: maximum number of messages kept per sender.
      drops_oldest: whether a message beyond that replaces the oldest one; if not, it is refused.
    """
    self._senders = {sender: _Sender() for sender in senders}
    self._capacity = capacity
    self._drops_oldest = drops_oldest
    self._changed = threading.Condition()
    self._closed = False

  def close(self) -> None:
    """Replies FINISHED to further messages."""
    with self._changed:
      self._closed = True

  def put(self, sender: int, incarnation: int, sequence: int, message: Message) -> int:
    """Keeps a message.

    Args:
      sender: index of the peer that sends it.
      incarnation: the sender's.
      sequence: from 1 on, larger for each later message of an incarnation.
      message: what it sends.

    Returns:
      KEPT if the message is kept or was kept before; REFUSED if its sender may send it again; FINISHED
      if it will never be kept.
    """
    with self._changed:
      known = self._senders[sender]
      if not self._is_current(known, incarnation) or sequence <= known.sequence:
        return KEPT
      if self._closed:
        return FINISHED
      if len(known.messages) >= self._capacity:
        if not self._drops_oldest:
          return REFUSED
        known.messages.popleft()
      known.messages.append(message)
      known.sequence = sequence
      self._changed.notify_all()
      return KEPT

  def leave(self, sender: int, incarnation: int, last: int) -> None:
    """Notes that an incarnation of a sender has finished training.

    Args:
      sender: index of the peer.
      incarnation: the sender's.
      last: sequence number of its last message, which may arrive later than this call.
    """
    with self._changed:
      known = self._senders[sender]
      if self._is_current(known, incarnation):
        known.last = last
        self._changed.notify_all()

  def wait(self, sender: int, timeout: float) -> bool:
    """Waits for a message of a sender; returns whether one is there, or none will come."""
    known = self._senders[sender]

    def ready() -> bool:
      has_left = known.last is not None and known.sequence >= known.last
      return bool(known.messages) or has_left

    with self._changed:
      return self._changed.wait_for(ready, timeout)

  def take(self, sender: int) -> Message | None:
    """Removes and returns the oldest message of a sender; None if there is none."""
    with self._changed:
      messages = self._senders[sender].messages
      return messages.popleft() if messages else None

  def _is_current(self, known: _Sender, incarnation: int) -> bool:
    """Returns whether an incarnation is the sender's current one; a new one is from now on."""
    if incarnation in known.retired:
      return False
    if incarnation != known.incarnation:
      if known.incarnation is not None:
        known.retired.add(known.incarnation)
      known.incarnation, known.sequence, known.last = incarnation, 0, None
    return True
