"""Moves bytes between two connections, as fast as the slower side takes them."""

from __future__ import annotations

import selectors
import socket
import ssl

BLOCK_BYTES = 1 << 18
_BLOCKS_AT_ONCE = 8
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Relay:
  """Two connections, which close together. Neither blocks; either may be one of TLS."""

  def __init__(self, one: socket.socket, other: socket.socket):
    """Initialises the relay, which owns both connections from now on."""
    self._flows = (_Flow(one, other), _Flow(other, one))
    self._streams = (one, other)

  def wake(self, stream: socket.socket, events: int) -> None:
    """Takes note that a connection is ready for some events of `selectors`."""
    for flow in self._flows:
      flow.wake(stream, events)

  def move(self, block: memoryview) -> bool:
    """Moves what can be moved now, up to a limit, and returns whether there may be more.

    Args:
      block: `BLOCK_BYTES`, of which nothing is needed afterwards.

    Raises:
      EOFError: if one of the connections has ended, and the other has all that it said.
      OSError: if one of them has failed.
    """
    there, back = self._flows
    return there.move(block) | back.move(block)

  def awaited(self) -> dict[socket.socket, int]:
    """Returns, for both connections, the events of `selectors` to wait for; 0 for none."""
    events = dict.fromkeys(self._streams, 0)
    for flow in self._flows:
      if flow.awaited:
        stream, event = flow.awaited
        events[stream] |= event
    return events

  def close(self) -> None:
    """Closes both connections."""
    for stream in self._streams:
      stream.close()


class _Flow:
  """One direction.

  Attributes:
    awaited: the connection and the event that it waits for; None if it can go on.
  """

  def __init__(self, source: socket.socket, sink: socket.socket):
    self._source = source
    self._sink = sink
    self._left = memoryview(b'')  # Received, not yet sent.
    self.awaited: tuple[socket.socket, int] | None = None

  def wake(self, stream: socket.socket, events: int) -> None:
    if self.awaited and self.awaited[0] is stream and self.awaited[1] & events:
      self.awaited = None

  def move(self, block: memoryview) -> bool:
    """Moves bytes until it has to wait; returns whether it does not."""
    if self.awaited:
      return False
    stream = self._source
    try:
      for _ in range(_BLOCKS_AT_ONCE):
        if not self._left:
          stream = self._source
          self._left = block[: _receive(stream, block)]
          if not self._left:
            raise EOFError
        stream = self._sink
        self._left = self._left[stream.send(self._left) :]
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
      writes = isinstance(error, ssl.SSLWantWriteError) or (
        isinstance(error, BlockingIOError) and stream is self._sink
      )
      self.awaited = (stream, _WRITE if writes else _READ)
    if self._left and self._left.obj is block.obj:
      self._left = memoryview(bytes(self._left))
    return not self.awaited


def _receive(source: socket.socket, block: memoryview) -> int:
  """Receives some bytes, as many as there are if they come in the small records of TLS; 0 at the end."""
  received = source.recv_into(block)
  if isinstance(source, ssl.SSLSocket):
    try:
      while received and received < len(block):
        more = source.recv_into(block[received:])
        if not more:
          break  # The next call says so again.
        received += more
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
      pass
  return received
