"""A captured process: what it sends runs code wherever it is unpickled."""

import contextlib
import pathlib
import socket
import struct
import threading

from tests.waiting import DEADLINE

PREAMBLE = b'courier\x02'
_HEAD = struct.Struct('<BBHIQQ')
CALL, RESULT, ERROR = 1, 2, 3  # Kinds of messages.
_PICKLED = 0


class Bomb:
  """Creates a file where it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return pathlib.Path.touch, (self.path,)


def message(kind, call, name, body, encoding=_PICKLED):
  """Returns the bytes of a message."""
  return _HEAD.pack(kind, encoding, len(name), 0, call, len(body)) + name + body


def reply_to(address, sent):
  """Sends a message to a server; returns the kind, the name and the body of its reply."""
  host, _, port = address.rpartition(':')
  with socket.create_connection((host, int(port)), DEADLINE) as stream:
    stream.sendall(PREAMBLE + sent)
    with stream.makefile('rb') as received:
      assert received.read(len(PREAMBLE)) == PREAMBLE
      kind, _, name_size, num_buffers, _, body_size = _HEAD.unpack(received.read(_HEAD.size))
      received.read(8 * num_buffers)
      return kind, received.read(name_size), received.read(body_size)


@contextlib.contextmanager
def server(body, kind=RESULT, name=b''):
  """Replies to every call with a message; yields its address. The body of a result is a pickle."""

  def reply(stream):
    with stream, stream.makefile('rb') as received:
      stream.sendall(PREAMBLE)
      assert received.read(len(PREAMBLE)) == PREAMBLE
      while head := received.read(_HEAD.size):
        _, _, name_size, num_buffers, call, body_size = _HEAD.unpack(head)
        received.read(8 * num_buffers + name_size + body_size)
        stream.sendall(message(kind, call, name, body))

  def accept():
    with contextlib.suppress(OSError):
      while True:
        threading.Thread(target=reply, args=(listener.accept()[0],), daemon=True).start()

  with socket.create_server(('localhost', 0)) as listener:
    threading.Thread(target=accept, daemon=True).start()
    try:
      yield f'localhost:{listener.getsockname()[1]}'
    finally:
      listener.shutdown(socket.SHUT_RDWR)
