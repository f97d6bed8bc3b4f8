"""The protocol: a preamble from each side, then messages.

A message is a head, the sizes of its buffers, a name, a body and the buffers. A value is in the body,
as a pickle or as data (see `courier.data`). Large arrays travel as buffers of their own, which are
neither copied into the body nor out of it.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import io
import itertools
import mmap
import pickle
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from courier import data, sockets

if TYPE_CHECKING:
  import ssl

  from courier import tls_stream

# What a message is; the comment says what its name and its body are.
CALL = 1  # The method; the arguments.
RESULT = 2  # None; the result.
ERROR = 3  # The name of the code; the text of the error.
CANCEL = 4  # None; none.
LIST = 5  # None; none.
_KINDS = (CALL, RESULT, ERROR, CANCEL, LIST)

# How the value in a body is encoded.
PICKLED, DATA = 0, 1

_PREAMBLE = b'courier\x02'  # Ends in the version of the protocol.
_HEAD = struct.Struct(
  '<BBHIQQ'
)  # Kind, encoding, size of the name, number of buffers, call, size of the body.
_SIZE = struct.Struct('<Q')
_MAPPED = 1 << 20  # Size from which memory is mapped, so that it is there only once it is filled.
_VECTORS = 64  # Buffers that one system call sends.
_PICKLE = 5  # The version of pickle: the first with separate buffers.


class Message(NamedTuple):
  """One message.

  Attributes:
    kind: one of the constants above.
    call: number of the call that it belongs to, chosen by the client.
    name: see the constants.
    body: see the constants.
    buffers: large arrays of the value in the body.
    encoding: of that value.
  """

  kind: int
  call: int
  name: str = ''
  body: bytes | bytearray | mmap.mmap = b''
  buffers: Sequence[Any] = ()
  encoding: int = PICKLED

  def value(self, data_only: bool) -> Any:
    """Returns the value in the body.

    Args:
      data_only: whether to refuse a pickle, which is not read then.

    Raises:
      ValueError: if it is refused, or is in no encoding.
      Exception: any that unpickling raises, unless `data_only`.
    """
    if self.encoding == DATA:
      return data.decode(self.body, self.buffers)
    if data_only:
      raise ValueError(
        'only data is accepted here, not pickles; on the other side, courier.Client or courier.Server '
        'needs data_only=True'
      )
    if self.encoding != PICKLED:
      raise ValueError(f'its encoding {self.encoding} is unknown')
    return pickle.loads(self.body, buffers=self.buffers)

  def parts(self) -> list[Any]:
    """Returns the bytes of this message in the order in which they are sent."""
    name = self.name.encode()
    sizes = len(name), len(self.buffers), self.call, len(self.body)
    head = _HEAD.pack(self.kind, self.encoding, *sizes)
    head += b''.join([_SIZE.pack(len(buffer)) for buffer in self.buffers]) + name
    if len(self.body) < data.SEPARATE:
      return [head + self.body, *self.buffers]
    return [head, self.body, *self.buffers]


def message(kind: int, call: int, name: str, value: Any, encoding: int) -> Message:
  """Returns a message with a snapshot of a value: later changes of its arrays are not sent.

  Arrays are writable where they arrive, even if they are read-only here.

  Raises:
    Exception: any that pickling raises; TypeError or ValueError if the value is no data.
  """
  if encoding == DATA:
    body, views = data.encode(value, '(args, kwargs)' if kind == CALL else 'result')
    return Message(kind, call, name, body, views, DATA)
  # Nothing is a NumPy array before NumPy has been imported.
  array_type = getattr(sys.modules.get('numpy'), 'ndarray', None)
  buffers: list[Any] = []

  def stays_in_body(buffer: pickle.PickleBuffer) -> bool:
    try:
      view = buffer.raw()
    except BufferError:  # Not contiguous.
      return True
    if len(view) < data.SEPARATE:
      return True
    buffers.append(view if type(view.obj) is array_type else bytes(view))
    return False

  file = io.BytesIO()
  pickler = pickle.Pickler(file, _PICKLE, buffer_callback=stays_in_body)
  if array_type is not None:
    pickler.dispatch_table = {**copyreg.dispatch_table, array_type: _reduced_copy}
  pickler.dump(value)
  return Message(kind, call, name, file.getvalue(), buffers)


def _reduced_copy(array: Any) -> Any:
  return array.copy().__reduce_ex__(_PICKLE)


def scratch() -> memoryview:
  """Returns memory that the connections of one thread share."""
  return memoryview(bytearray(64 << 10))


class Connection:
  """One end of a connection: sends and receives messages without ever waiting.

  One thread receives. Sending needs a lock of the owner, because several threads send.

  Attributes:
    is_greeted: whether the other side has sent the preamble.
    unsent: what the socket has not taken yet; `flush` sends it.
  """

  def __init__(
    self, stream: socket.socket, scratch: memoryview, context: ssl.SSLContext | None = None
  ):
    """Initialises a connection.

    Args:
      stream: a socket that does not block; closed with the connection.
      scratch: memory that the connections of one thread share.
      context: encrypts what goes over TCP; None to encrypt nothing.
    """
    self._tls: tls_stream.TLSStream | None = None
    if context is not None and stream.family != socket.AF_UNIX:
      from courier import tls_stream

      self._tls = tls_stream.TLSStream(stream, context, scratch)
    self._stream: Any = self._tls or stream
    self.unsent: collections.deque[Any] = collections.deque([_PREAMBLE])
    self.is_greeted = False
    self._received: list[Message] = []
    self._scratch = scratch
    self._head = bytearray(_HEAD.size)
    self._at_head = memoryview(self._head)
    self._filled = self._parse()
    self._room = memoryview(next(self._filled))
    sockets.reset_in_child(self)

  def fileno(self) -> int:
    """Returns the file descriptor of the socket; -1 once it is closed."""
    return self._stream.fileno()

  @property
  def is_secure(self) -> bool:
    """Whether the TLS handshake is finished, if there has to be one."""
    return self._tls is None or self._tls.is_secure

  def send(self, message: Message) -> bool:
    """Sends what the socket takes at once; returns whether that is everything.

    An error of the connection is left to the thread that receives, which finds it as well.
    """
    parts = message.parts()
    if not self.unsent and len(parts) == 1:
      try:
        count = self._stream.send(parts[0])
      except OSError:
        count = 0  # `flush` finds out why.
      if count == len(parts[0]):
        return True
      parts = [memoryview(parts[0])[count:]]
    self.unsent += parts
    return self.flush()

  def flush(self) -> bool:
    """Sends what the socket takes at once of what is unsent; returns whether that is everything."""
    try:
      count = self._stream.sendmsg(itertools.islice(self.unsent, _VECTORS)) if self.unsent else 0
    except BlockingIOError:
      return False
    except OSError:
      self.end()
      return True
    while self.unsent and count >= len(self.unsent[0]):
      count -= len(self.unsent.popleft())
    if count:
      self.unsent[0] = memoryview(self.unsent[0])[count:]
    return not self.unsent

  def receive(self) -> list[Message]:
    """Reads once from the socket; returns the messages that are complete now.

    Raises:
      OSError: if the connection is lost, or its other side does not speak this protocol.
      tls.HandshakeError: if one side refuses the other.
    """
    try:
      self._read()
      while self._tls is not None and self._tls.pending():
        self._read()
    except BlockingIOError:
      pass
    received, self._received = self._received, []
    return received

  def end(self) -> None:
    """Ends the connection in both directions; the thread that receives finds out."""
    with contextlib.suppress(OSError):
      self._stream.shutdown(socket.SHUT_RDWR)

  def close(self) -> None:
    """Closes the socket; only this process's copy of it."""
    self.unsent.clear()
    self._stream.close()

  reset = close

  def _read(self) -> None:
    if len(self._room) >= len(self._scratch):
      count = self._stream.recv_into(self._room)
      self._advance(count)
    else:
      count = self._stream.recv_into(self._scratch)
      begin = 0
      while begin < count:
        if self._room is self._at_head and (size := self._take_whole(begin, count)):
          begin += size
          continue
        size = min(count - begin, len(self._room))
        self._room[:size] = self._scratch[begin : begin + size]
        begin += size
        self._advance(size)
    if not count:
      raise ConnectionError('the other side has closed the connection')

  def _advance(self, count: int) -> None:
    self._room = self._room[count:]
    if not self._room:
      memory = next(self._filled)
      self._room = self._at_head if memory is self._head else memoryview(memory)

  def _take_whole(self, begin: int, end: int) -> int:
    """Takes a message if all of it is in the scratch memory; returns its size, or 0.

    `_parse` does the same, with large messages in mind, in three times the time.
    """
    begin_of_name = begin + _HEAD.size
    if begin_of_name > end:
      return 0
    head = _HEAD.unpack_from(self._scratch, begin)
    kind, encoding, name_size, num_buffers, call, body_size = head
    begin_of_body = begin_of_name + name_size
    end_of_body = begin_of_body + body_size
    if num_buffers or end_of_body > end or kind not in _KINDS:
      return 0
    name = str(self._scratch[begin_of_name:begin_of_body], 'utf-8', errors='replace')
    body = bytes(self._scratch[begin_of_body:end_of_body])
    self._received.append(Message(kind, call, name, body, (), encoding))
    return end_of_body - begin

  def _parse(self) -> Iterator[Any]:
    """Yields the memory for the next bytes; goes on once it is filled."""
    preamble = bytearray(len(_PREAMBLE))
    yield preamble
    if preamble != _PREAMBLE:
      raise ConnectionError('the other side does not speak this protocol')
    self.is_greeted = True
    while True:
      yield self._head
      kind, encoding, name_size, num_buffers, call, body_size = _HEAD.unpack(self._head)
      if kind not in _KINDS:
        raise ConnectionError(f'the other side has sent a message of the unknown kind {kind}')
      sizes = _memory(_SIZE.size * num_buffers)
      name = bytearray(name_size)
      body = _memory(body_size)
      for memory in (sizes, name, body):
        if memory:
          yield memory
      buffers = [_memory(size) for (size,) in _SIZE.iter_unpack(sizes)] if sizes else []
      for memory in buffers:
        if memory:
          yield memory
      text = name.decode(errors='replace')
      self._received.append(Message(kind, call, text, body, buffers, encoding))
      del memory, sizes, body, buffers  # Or they would stay here until the next message.


def _memory(size: int) -> bytearray | mmap.mmap:
  """Returns memory for bytes to come; a size that the peer never fills costs address space only.

  Raises:
    OSError: if there is no such memory.
  """
  if size < _MAPPED:
    return bytearray(size)
  try:
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE)
  except (OverflowError, ValueError) as error:
    raise OSError(f'no memory for {size} bytes: {error}') from error
