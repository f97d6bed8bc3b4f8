"""Messages over a socket: the number of bytes, in four, and then the bytes."""

from __future__ import annotations

import contextlib
import socket
import struct

_SIZE = struct.Struct('!I')
_FIRST_BUFFER = 4096


class Connection:
  """One end of a socket on which one message at a time is under way.

  Raises OSError from both methods when the connection is of no more use.
  """

  def __init__(self, stream: socket.socket, max_bytes: int = 1 << 30):
    """Takes a socket over.

    Args:
      stream: connected; its timeout is that of both methods.
      max_bytes: of a message that is accepted.
    """
    if stream.family in (socket.AF_INET, socket.AF_INET6):
      stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
      stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # A lost host says no goodbye.
    self._socket = stream
    self._max_bytes = max_bytes
    self._buffer = bytearray(_FIRST_BUFFER)
    self._filled = 0

  def fileno(self) -> int:
    """Returns the socket's number, for a selector."""
    return self._socket.fileno()

  def set_timeout(self, seconds: float) -> None:
    """Sets for how long `send` and `receive` wait; TimeoutError, an OSError, after that."""
    self._socket.settimeout(seconds)

  def send(self, message: bytes) -> None:
    """Sends a message."""
    self._socket.sendall(_SIZE.pack(len(message)) + message)

  def receive(self) -> bytes | None:
    """Takes some of what has come, after waiting for it; returns the message once it is whole."""
    count = self._socket.recv_into(memoryview(self._buffer)[self._filled :])
    if not count:
      raise ConnectionError('the other side has closed the connection.')
    self._filled += count
    if self._filled < _SIZE.size:
      return None
    (length,) = _SIZE.unpack_from(self._buffer)
    end = _SIZE.size + length
    if length > self._max_bytes or self._filled > end:
      raise ConnectionError('what came is no message of this protocol.')
    if self._filled < end:
      if len(self._buffer) < end:
        self._buffer.extend(bytes(end - len(self._buffer)))
      return None
    self._filled = 0
    return bytes(memoryview(self._buffer)[_SIZE.size : end])

  def give_up(self) -> None:
    """Ends the connection for both sides, without closing this one."""
    with contextlib.suppress(OSError):
      self._socket.shutdown(socket.SHUT_RDWR)

  def close(self) -> None:
    """Closes this side."""
    self._socket.close()
