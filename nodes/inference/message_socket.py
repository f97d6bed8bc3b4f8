"""Messages over a socket: a four-byte length, then the content.

A Unix socket may pass shared memory to the other side with its first bytes. TLS encrypts what goes over
TCP, if the run has a certificate.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING

from absl import logging

from courier import sockets
from nodes.inference.shared_memory import SharedMemory

if TYPE_CHECKING:
  import ssl

  from courier import tls_stream

_SIZE = struct.Struct('!I')
_FIRST_BUFFER = 4096
_SCRATCH = 17 << 10  # Holds the longest record of TLS.
# `peer_answers` returns False at this many successive retransmits or unanswered probes.
_LOST_PACKETS, _LOST_PROBES = 4, 2
_DESCRIPTOR = array.array('i').itemsize


class MessageSocket:
  """One end of a socket that carries one message at a time.

  Raises OSError if the connection is unusable. Its subclasses TimeoutError and BlockingIOError only
  mean that nothing can be sent or received for now. With TLS, sending and receiving first go on with the
  handshake, which raises `tls.HandshakeError` if it fails.

  Attributes:
    unsent: the unsent rest of a message.
  """

  def __init__(
    self,
    stream: socket.socket,
    max_bytes: int = 1 << 30,
    max_shared_bytes: int = 0,
    context: ssl.SSLContext | None = None,
    scratch: memoryview | None = None,
  ):
    """Wraps a socket and owns it from now on.

    Args:
      stream: connected, of `courier.sockets`; its timeout applies to sending and receiving.
      max_bytes: maximum size of an accepted message.
      max_shared_bytes: maximum size of memory that the peer may share; 0 to accept none.
      context: of this side, for TLS over TCP; None for no TLS.
      scratch: memory for TLS that sockets of one thread share; None for memory of its own.
    """
    self._internet = stream.family in (socket.AF_INET, socket.AF_INET6)
    self._socket = stream
    self._tls: tls_stream.TLSStream | None = None
    if context is not None and self._internet:
      from courier.tls_stream import TLSStream

      self._tls = TLSStream(stream, context, scratch or memoryview(bytearray(_SCRATCH)))
    self._max_bytes = max_bytes
    self._max_shared_bytes = max_shared_bytes
    self._memory: SharedMemory | None = None
    self._passing = -1  # The file descriptor that goes with the next bytes.
    self._may_share = not self._internet
    self._may_receive = not self._internet
    self._buffer = bytearray(_FIRST_BUFFER)
    self._filled = 0
    self.unsent: bytes | memoryview = b''
    sockets.reset_in_child(self)

  def fileno(self) -> int:
    """Returns the socket's file descriptor, for a selector."""
    return self._socket.fileno()

  @property
  def is_secure(self) -> bool:
    """Whether the TLS handshake is finished, if there has to be one."""
    return self._tls is None or self._tls.is_secure

  @property
  def memory(self) -> SharedMemory | None:
    """Memory for the arrays of messages; None unless one side has created it and both have mapped it."""
    memory = self._memory
    return memory if memory is not None and memory.mapped_by_receiver else None

  @property
  def may_share(self) -> bool:
    """Whether `share` passes memory: over a Unix socket, before the first message."""
    return self._may_share

  def share(self, num_bytes: int) -> None:
    """Passes new memory to the peer along with the next message; logs once if there is none to have.

    Args:
      num_bytes: its size; 0 for no memory on this connection.
    """
    self._may_share = False
    if num_bytes:
      try:
        self._memory, self._passing = SharedMemory.create(num_bytes)
      except OSError as error:
        logging.log_first_n(
          logging.INFO, 'rows go over a socket, as no memory can be shared: %s.', 1, error
        )

  def set_timeout(self, seconds: float) -> None:
    """Sets the timeout for the next bytes; TimeoutError is raised after it."""
    self._socket.settimeout(seconds)

  def begin(self, message: bytes) -> None:
    """Sets the message to send. Raises OSError if the previous one is not fully sent."""
    if self.unsent:
      raise ConnectionError('the other side has not taken the message before this one.')
    self.unsent = _SIZE.pack(len(message)) + message

  def send_some(self) -> bool:
    """Waits for room and sends part of the message; returns whether all of it is sent."""
    # Cleared before the peer can have the message: its next request may be served, and that reply
    # be sent by another thread, before this one runs again.
    unsent, self.unsent = self.unsent, b''
    try:
      if self._passing < 0:
        count = (self._tls or self._socket).send(unsent)
      else:
        count = socket.send_fds(self._socket, [unsent], [self._passing])
        self._close_passed()
    except OSError:
      self.unsent = unsent
      raise
    if count == len(unsent):
      return True
    self.unsent = memoryview(unsent)[count:]
    return False

  def send(self, message: bytes) -> None:
    """Sends a message. After a TimeoutError or BlockingIOError, `send_some` sends the rest."""
    self.begin(message)
    while not self.send_some():
      pass

  def receive(self) -> bytes | None:
    """Waits for bytes and reads them; returns the message once it is complete, else None."""
    while True:
      with memoryview(self._buffer)[self._filled :] as room:  # Released even if an error is kept.
        count = self._read(room)
      if not count:
        raise ConnectionError('the other side has closed the connection.')
      self._filled += count
      if (message := self._take()) is not None:
        return message
      if self._tls is None or not self._tls.pending():  # A selector knows of the socket only.
        return None

  def closed_by_peer(self) -> bool:
    """Returns whether the peer has closed the connection and everything it sent has been read.

    Does not wait, unless the socket has a timeout: then it waits that long for the peer.
    """
    try:
      return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except (BlockingIOError, TimeoutError):
      return False
    except OSError:
      return True

  def peer_answers(self) -> bool:
    """Returns whether the peer's machine still acknowledges packets, even if its process is busy."""
    if not self._internet:
      return True
    # The first bytes of a struct tcp_info: state, congestion, retransmits, probes.
    info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 4)
    return info[2] < _LOST_PACKETS and info[3] < _LOST_PROBES

  def give_up(self) -> None:
    """Ends the connection in both directions; the thread that reads it then closes this socket.

    Any thread may call it. Closing a socket that another thread polls would free its file descriptor.
    """
    with contextlib.suppress(OSError):
      self._socket.shutdown(socket.SHUT_RDWR)

  def close(self) -> None:
    """Closes this socket; arrays in its memory stay valid."""
    self._close_passed()
    self._memory = None
    self._socket.close()

  reset = close

  def _take(self) -> bytes | None:
    """Returns the message if it is complete; otherwise makes room for the rest of it."""
    if self._filled < _SIZE.size:
      return None
    (length,) = _SIZE.unpack_from(self._buffer)
    end = _SIZE.size + length
    if length > self._max_bytes or self._filled > end:
      raise ConnectionError('the bytes received are not a message of this protocol.')
    if self._filled < end:
      if self._filled == len(self._buffer):  # Room follows the bytes received, not `length`.
        self._buffer.extend(bytes(min(self._filled, end - self._filled)))
      return None
    self._filled = 0
    return bytes(memoryview(self._buffer)[_SIZE.size : end])

  def _close_passed(self) -> None:
    if self._passing >= 0:
      os.close(self._passing)
      self._passing = -1

  def _read(self, room: memoryview) -> int:
    """Returns how many bytes have been read; maps memory that came with the first of them."""
    if not self._may_receive:
      return (self._tls or self._socket).recv_into(room)
    size = socket.CMSG_SPACE(_DESCRIPTOR)
    count, extras, *_ = self._socket.recvmsg_into([room], size, socket.MSG_CMSG_CLOEXEC)
    self._may_receive = False
    for level, kind, data in extras:
      if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
        passed = array.array('i', data[: len(data) // _DESCRIPTOR * _DESCRIPTOR])
        for descriptor in passed:
          self._map(descriptor)
    return count

  def _map(self, descriptor: int) -> None:
    """Maps memory if it is accepted; closes the descriptor."""
    try:
      if self._max_shared_bytes and self._memory is None:
        self._memory = SharedMemory.receive(descriptor, self._max_shared_bytes)
    except OSError as error:
      logging.log_first_n(
        logging.WARNING,
        'rows of an actor come over a socket, as its memory is refused: %s.',
        1,
        error,
      )
    finally:
      os.close(descriptor)
