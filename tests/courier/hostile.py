"""A captured process: what it sends runs code wherever it is unpickled."""

import contextlib
import pathlib
import pickle
import socket
import struct
import threading

_PREAMBLE = b'courier\x02'
_HEAD = struct.Struct('<BBHIQQ')
_RESULT, _PICKLED = 2, 0


class Bomb:
  """Creates a file where it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return pathlib.Path.touch, (self.path,)


@contextlib.contextmanager
def server(bomb):
  """Replies to every call with a pickled bomb; yields its address."""

  def reply(stream):
    with stream, stream.makefile('rb') as received:
      stream.sendall(_PREAMBLE)
      assert received.read(len(_PREAMBLE)) == _PREAMBLE
      while head := received.read(_HEAD.size):
        _, _, name_size, num_buffers, call, body_size = _HEAD.unpack(head)
        received.read(8 * num_buffers + name_size + body_size)
        body = pickle.dumps(bomb)
        stream.sendall(_HEAD.pack(_RESULT, _PICKLED, 0, 0, call, len(body)) + body)

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
