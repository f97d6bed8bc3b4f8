"""Moves bytes between two connections, as fast as the slower side takes them."""

from __future__ import annotations

import selectors
import socket

from courier.tls_stream import TLSStream

BLOCK_BYTES = 1 << 18
_BLOCKS_AT_ONCE = 8
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
Stream = socket.socket | TLSStream


class Relay:
  """Two connections, which do not block and close together."""

  def __init__(self, client: Stream, server: Stream, said: bytes = b''):
    """Initialises the relay, which owns both connections from now on.

    Args:
      client: one side.
      server: the other side.
      said: what has been received of the client.
    """
    self._flows = (_Flow(client, server, said), _Flow(server, client))
    self._streams = (client, server)

  def wake(self, stream: Stream, events: int) -> None:
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

  def awaited(self) -> dict[Stream, int]:
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

  def __init__(self, source: Stream, sink: Stream, said: bytes = b''):
    self._source = source
    self._sink = sink
    self._left = memoryview(said)  # Received, and not sent yet.
    self.awaited: tuple[Stream, int] | None = None

  def wake(self, stream: Stream, events: int) -> None:
    if self.awaited and self.awaited[0] is stream and self.awaited[1] & events:
      self.awaited = None

  def move(self, block: memoryview) -> bool:
    """Moves bytes until it has to wait; returns whether it does not."""
    if self.awaited:
      return False
    wait = (self._sink, _WRITE)
    try:
      for _ in range(_BLOCKS_AT_ONCE):
        if not self._left:
          wait = (self._source, _READ)
          self._left = block[: self._source.recv_into(block)]
          if not self._left:
            raise EOFError
          wait = (self._sink, _WRITE)
        self._left = self._left[self._sink.send(self._left) :]
    except BlockingIOError:
      self.awaited = wait
    if self._left and self._left.obj is block.obj:
      self._left = memoryview(bytes(self._left))
    return not self.awaited
