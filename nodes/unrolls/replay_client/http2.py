"""A client of gRPC over HTTP/2 (RFC 9113): one call at a time on a connection, and no thread of its own.

Nothing here waits. The owner calls `advance` whenever `wait` says that the socket is ready.
"""

from __future__ import annotations

import collections
import itertools
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from courier import sockets
from courier.tls import HandshakeError
from nodes.unrolls.replay_client import errors, hpack

if TYPE_CHECKING:
  import ssl

  from courier.tls_stream import TLSStream

_PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
# Types of frames.
_DATA, _HEADERS, _RST_STREAM, _SETTINGS = 0x0, 0x1, 0x3, 0x4
_PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0x6, 0x7, 0x8, 0x9
# Flags of frames.
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
# Settings.
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 0x1, 0x2, 0x4, 0x5
_DEFAULT_WINDOW, _LARGEST_WINDOW = (1 << 16) - 1, (1 << 31) - 1
_DEFAULT_FRAME, _LARGEST_FRAME = 1 << 14, (1 << 24) - 1
_REFILL = 1 << 30  # Bytes received after which the server may send as many again.

_FRAME = struct.Struct('>HBBBI')  # Length in two parts, type, flags, stream.
_SETTING = struct.Struct('>HI')
_PREFIX = struct.Struct('>BI')  # Of a message of gRPC: whether it is compressed, and its size.
_NUMBER = struct.Struct('>I')

_SCRATCH = 1 << 18
_DIRECT = 1 << 16  # Size from which data is received where it stays.
_VECTORS = 256  # Buffers that one system call sends.
# What another error than a status of gRPC means, by its code in RST_STREAM.
_REFUSED = {0x7: errors.UNAVAILABLE, 0x8: errors.CANCELLED}

Buffer = Any  # bytes, or a contiguous memoryview of bytes.


class Connection:
  """One connection to a server, for calls one after the other.

  Attributes:
    messages: the messages of the call that have arrived.
    is_reusable: whether another call may follow one that has ended.
  """

  def __init__(self, stream: socket.socket, context: ssl.SSLContext | None = None):
    """Initialises a connection.

    Args:
      stream: connected, does not block, and is closed with the connection.
      context: encrypts what goes over TCP to another machine; None to encrypt nothing.
    """
    self._scratch = memoryview(bytearray(_SCRATCH))
    self._tls: TLSStream | None = None
    if context is not None:
      from courier.tls_stream import TLSStream

      self._tls = TLSStream(stream, context, memoryview(bytearray(_SCRATCH)))
    self._stream: Any = self._tls or stream
    self.messages: list[memoryview] = []
    self.is_reusable = True
    self._id = -1
    self._status: errors.ReplayError | None = None
    self._ended = True
    # To be sent: frames, and what waits for the server's window before it becomes frames.
    self._frames: collections.deque[Buffer] = collections.deque()
    self._body: collections.deque[Buffer] = collections.deque()
    self._body_size = 0
    self._is_last = False
    self._failure: OSError | None = None
    self._window = _DEFAULT_WINDOW
    self._stream_window = self._initial_window = _DEFAULT_WINDOW
    self._max_frame = _DEFAULT_FRAME
    # Received: bytes that are not parsed yet, and the frame and the message that they belong to.
    self._begin = self._end = 0
    self._data_left = 0
    self._data_ends = False
    self._prefix = b''
    self._message: memoryview | None = None
    self._filled = 0
    self._block = b''
    self._block_ends = False
    self._refill = self._stream_refill = 0
    settings = (
      _SETTING.pack(_HEADER_TABLE_SIZE, 0)
      + _SETTING.pack(_ENABLE_PUSH, 0)
      + _SETTING.pack(_INITIAL_WINDOW_SIZE, _LARGEST_WINDOW)
      + _SETTING.pack(_MAX_FRAME_SIZE, _LARGEST_FRAME)
    )
    self._frames.append(_PREFACE + _frame(_SETTINGS, 0, 0, settings))
    self._frames.append(
      _frame(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(_LARGEST_WINDOW - _DEFAULT_WINDOW))
    )
    sockets.reset_in_child(self)

  def fileno(self) -> int:
    """Returns the file descriptor of the socket; -1 once it is closed."""
    return self._stream.fileno()

  def begin(self, method: str, authority: str) -> None:
    """Begins a call, after the previous one has ended."""
    assert self._ended and self.is_reusable
    self._id += 2
    self._ended, self._status = False, None
    self._stream_window, self._stream_refill = self._initial_window, 0
    self._is_last = False
    self._prefix, self._message = b'', None
    self.messages = []
    block = hpack.encode(
      [
        (':method', 'POST'),
        (':scheme', 'http'),
        (':path', method),
        (':authority', authority[:100]),
        ('te', 'trailers'),
        ('content-type', 'application/grpc'),
      ]
    )
    self._frames.append(_frame(_HEADERS, _END_HEADERS, self._id, block))

  def send(self, parts: Sequence[Buffer], last: bool = False) -> None:
    """Queues a message, the bytes of its parts; `last` if no further message follows.

    The parts are not copied and must not change before they are sent.
    """
    size = sum(map(len, parts))
    self._body.append(_PREFIX.pack(0, size))
    self._body.extend(parts)
    self._body_size += _PREFIX.size + size
    self._is_last = last

  @property
  def unsent(self) -> int:
    """Number of bytes of messages that wait for the server's window."""
    return self._body_size

  def check(self) -> bool:
    """Returns whether the call has ended well; raises the error with which it ended otherwise."""
    if self._status is not None:
      raise self._status
    return self._ended

  def advance(self) -> None:
    """Sends and receives what is possible at once, up to the first messages.

    Raises:
      OSError: if the connection is lost or the server breaks the protocol.
    """
    if self._failure is not None:
      raise self._failure
    try:
      self._exchange()
    except HandshakeError as error:
      raise ConnectionError(f'the TLS handshake with the server has failed: {error}') from error
    except OSError as error:
      self.is_reusable = False
      if not self.messages and not self._ended:
        raise
      self._failure = error  # For the next call, since what has arrived counts.

  def _exchange(self) -> None:
    more = True
    while more:
      try:
        self._send()
      except OSError:
        while self._receive():  # The server may have said why it has closed the connection.
          pass
        raise
      more = self._receive() and (not self.messages or self._has_pending())
    self._send()  # What has arrived may allow it, or need a reply.

  @property
  def wants_to_send(self) -> bool:
    """Whether the socket has not taken everything that may be sent."""
    # A handshake of TLS waits for bytes to receive.
    return bool(self._frames) and (self._tls is None or self._tls.is_secure)

  def close(self) -> None:
    """Closes the socket; only this process's copy of it."""
    self._stream.close()
    self.is_reusable = False

  reset = close

  def _send(self) -> None:
    """Sends frames until there are none or the socket takes no more."""
    while True:
      if self._body_size and len(self._frames) < _VECTORS:
        self._fill_frames()
      if not self._frames:
        return
      try:
        count = self._stream.sendmsg(itertools.islice(self._frames, _VECTORS))
      except BlockingIOError:
        return
      frames = self._frames
      while frames and count >= len(frames[0]):
        count -= len(frames.popleft())
      if count:
        frames[0] = memoryview(frames[0])[count:]

  def _fill_frames(self) -> None:
    """Makes frames of the body, as far as the server's windows allow."""
    while self._body_size and len(self._frames) < 2 * _VECTORS:
      size = min(self._body_size, self._window, self._stream_window, self._max_frame)
      if size <= 0:
        return
      self._window -= size
      self._stream_window -= size
      self._body_size -= size
      flags = _END_STREAM if self._is_last and not self._body_size else 0
      self._frames.append(_frame_head(size, _DATA, flags, self._id))
      while size:
        part = self._body.popleft()
        if len(part) > size:
          view = memoryview(part)
          self._body.appendleft(view[size:])
          part = view[:size]
        self._frames.append(part)
        size -= len(part)

  def _receive(self) -> bool:
    """Reads once; returns whether there may be more."""
    message = self._message
    try:
      if message is not None and self._begin == self._end:
        room = min(self._data_left, len(message) - self._filled)
        if room >= _DIRECT:
          count = self._stream.recv_into(message[self._filled : self._filled + room])
          if not count:
            raise ConnectionError('the server has closed the connection')
          self._data_left -= count
          self._add_to_message(count)
          if not self._data_left:
            self._end_of_data()
          return count == room or self._has_pending()
      if self._begin:
        self._scratch[: self._end - self._begin] = self._scratch[self._begin : self._end]
        self._begin, self._end = 0, self._end - self._begin
      room = _SCRATCH - self._end
      count = self._stream.recv_into(self._scratch[self._end :])
    except BlockingIOError:
      return False
    if not count:
      raise ConnectionError('the server has closed the connection')
    self._end += count
    self._parse()
    return count == room or self._data_left >= _DIRECT or self._has_pending()

  def _has_pending(self) -> bool:
    """Returns whether TLS holds bytes that the socket no longer has."""
    return self._tls is not None and self._tls.pending()

  def _parse(self) -> None:
    """Takes all frames, and the part of the last one, out of the scratch memory."""
    scratch, head = self._scratch, _FRAME.size
    while True:
      if self._data_left:
        size = min(self._data_left, self._end - self._begin)
        if not size:
          return
        begin = self._begin
        self._begin += size
        self._data_left -= size
        self._take(begin, begin + size)
        if self._data_left:
          return
        self._end_of_data()
      if self._end - self._begin < head:
        return
      high, low, kind, flags, stream = _FRAME.unpack_from(scratch, self._begin)
      size = high << 8 | low
      if kind == _DATA:
        if flags & _PADDED or stream != self._id or self._ended:
          raise ConnectionError('the server has sent data that belongs to no call')
        self._begin += head
        self._count(size)
        self._data_left, self._data_ends = size, bool(flags & _END_STREAM)
        if not size:
          self._end_of_data()
        continue
      if size > _SCRATCH - head:
        raise ConnectionError('the server has sent a frame that is too large')
      if self._end - self._begin < head + size:
        return
      begin = self._begin + head
      self._begin = begin + size
      self._handle(kind, flags, stream & _LARGEST_WINDOW, bytes(scratch[begin : begin + size]))

  def _count(self, size: int) -> None:
    """Lets the server send as much again once a lot has been received."""
    self._refill += size
    self._stream_refill += size
    if self._refill >= _REFILL:
      self._frames.append(_frame(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(self._refill)))
      self._refill = 0
    if self._stream_refill >= _REFILL:
      self._frames.append(_frame(_WINDOW_UPDATE, 0, self._id, _NUMBER.pack(self._stream_refill)))
      self._stream_refill = 0

  def _take(self, begin: int, end: int) -> None:
    """Takes data, a part of the scratch memory, as parts of messages."""
    scratch = self._scratch
    while begin < end:
      message = self._message
      if message is not None:
        size = min(end - begin, len(message) - self._filled)
        message[self._filled : self._filled + size] = scratch[begin : begin + size]
        begin += size
        self._add_to_message(size)
        continue
      if not self._prefix and end - begin >= _PREFIX.size:
        compressed, size = _PREFIX.unpack_from(scratch, begin)
        begin += _PREFIX.size
      else:
        missing = _PREFIX.size - len(self._prefix)
        self._prefix += bytes(scratch[begin : min(end, begin + missing)])
        begin += missing
        if len(self._prefix) < _PREFIX.size:
          return
        compressed, size = _PREFIX.unpack(self._prefix)
        self._prefix = b''
      if compressed:
        raise ConnectionError('the server has sent a compressed message')
      if end - begin >= size:
        self.messages.append(memoryview(bytes(scratch[begin : begin + size])))
        begin += size
      else:
        self._message, self._filled = memoryview(np.empty(size, np.uint8)).cast('B'), 0

  def _add_to_message(self, count: int) -> None:
    assert self._message is not None
    self._filled += count
    if self._filled == len(self._message):
      self.messages.append(self._message)
      self._message = None

  def _end_of_data(self) -> None:
    if self._data_ends:  # A server that speaks gRPC ends with headers.
      self._end_call(errors.of_status(errors.UNAVAILABLE, 'the server has ended the call'))

  def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
    if kind == _SETTINGS:
      if not flags & _ACK:
        self._apply(payload)
        self._frames.append(_frame(_SETTINGS, _ACK, 0, b''))
    elif kind == _PING:
      if not flags & _ACK:
        self._frames.append(_frame(_PING, _ACK, 0, payload))
    elif kind == _WINDOW_UPDATE:
      (more,) = _NUMBER.unpack(payload)
      if not stream:
        self._window += more & _LARGEST_WINDOW
      elif stream == self._id:
        self._stream_window += more & _LARGEST_WINDOW
    elif kind == _GOAWAY:
      self.is_reusable = False
      if int.from_bytes(payload[:4], 'big') < self._id:
        self._end_call(errors.of_status(errors.UNAVAILABLE, 'the server takes no more calls'))
    elif stream != self._id or self._ended:
      pass  # What is left of an earlier call.
    elif kind == _RST_STREAM:
      (code,) = _NUMBER.unpack(payload)
      status = _REFUSED.get(code, errors.UNAVAILABLE)
      self._end_call(errors.of_status(status, f'the server has reset the call, with code {code}'))
    elif kind == _HEADERS:
      padding = payload[0] if flags & _PADDED else 0
      begin = (1 if flags & _PADDED else 0) + (5 if flags & _PRIORITY else 0)
      self._block, self._block_ends = payload[begin : len(payload) - padding], bool(flags & 1)
      if flags & _END_HEADERS:
        self._end_of_headers()
    elif kind == _CONTINUATION:
      self._block += payload
      if flags & _END_HEADERS:
        self._end_of_headers()

  def _apply(self, settings: bytes) -> None:
    for name, value in _SETTING.iter_unpack(settings):
      if name == _INITIAL_WINDOW_SIZE:
        self._stream_window += value - self._initial_window
        self._initial_window = value
      elif name == _MAX_FRAME_SIZE:
        self._max_frame = value

  def _end_of_headers(self) -> None:
    try:
      fields = hpack.decode(self._block)
    except ValueError as error:
      raise ConnectionError(f'the server has sent malformed headers: {error}') from error
    code = fields.get('grpc-status', '')
    if code == '0':
      self._end_call(None)
    elif code.isdecimal():
      text = _unquoted(fields.get('grpc-message', ''))
      self._end_call(errors.of_status(int(code), text or f'gRPC status {code}'))
    elif self._block_ends or fields.get(':status') != '200':
      text = f'the server has ended the call with HTTP status {fields.get(":status")}'
      self._end_call(errors.of_status(errors.UNAVAILABLE, text))

  def _end_call(self, status: errors.ReplayError | None) -> None:
    self._ended, self._status = True, status
    # The server would have to take the rest of the call.
    self.is_reusable = self.is_reusable and status is None and not self._body_size
    self._body.clear()
    self._body_size = 0


def wait(connections: Sequence[Connection], others: Sequence[Any], deadline: float | None) -> None:
  """Waits until `advance` of a connection, or one of `others`, has something to do.

  Args:
    connections: to wait for.
    others: that have a file descriptor to read.
    deadline: time of `time.monotonic`; None to wait without one.
  """
  poll = select.poll()
  for connection in connections:
    sends = select.POLLOUT if connection.wants_to_send else 0
    poll.register(connection, select.POLLIN | sends)
  for other in others:
    poll.register(other, select.POLLIN)
  left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
  poll.poll(left)


def _frame_head(size: int, kind: int, flags: int, stream: int) -> bytes:
  return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
  return _frame_head(len(payload), kind, flags, stream) + payload


def _unquoted(text: str) -> str:
  """Returns a message of gRPC, whose special characters are quoted as in URLs."""
  from urllib.parse import unquote

  return unquote(text)
