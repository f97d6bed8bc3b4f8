"""The messages of many connections, read by one thread."""

from __future__ import annotations

import contextlib
import errno
import resource
import selectors
import socket

from absl import logging

from nodes import listening
from nodes.connection import Connection

_OPEN_FILES = 1 << 16


class Inbox:
  """Accepts connections and reads their messages.

  One thread at a time polls; any may wake it, connect, or send on a connection that it has met.
  """

  def __init__(self, port: int | None = None):
    """Begins to listen; who connects is accepted in `poll`.

    Args:
      port: on every interface; None to be reached by `connect` alone.

    Raises:
      OSError: if the port is in use.
    """
    self._max_bytes = 0
    self._selector = selectors.DefaultSelector()
    self._woken, self._waker = socket.socketpair()
    for end in (self._woken, self._waker):
      end.setblocking(False)
    self._selector.register(self._woken, selectors.EVENT_READ)
    self._listener: socket.socket | None = None
    if port is not None:
      _allow_many_connections()
      self._listener = listening.listen(port)
      self._selector.register(self._listener, selectors.EVENT_READ)

  def accept_messages_of(self, max_bytes: int) -> None:
    """Sets how large a message may be; who sends a larger one is disconnected."""
    self._max_bytes = max_bytes

  def connect(self) -> Connection:
    """Returns a connection from this process. Raises OSError once closed."""
    near, far = socket.socketpair()
    try:
      self._add(far)
    except (KeyError, ValueError):
      raise ConnectionError('nobody listens any more.') from None
    return Connection(near)

  def poll(self, timeout: float | None) -> list[tuple[Connection, bytes]]:
    """Returns the messages that have come, none after `timeout` seconds or a `wake`.

    Raises:
      OSError: if this process may not have as many connections as others have opened.
    """
    messages = []
    for key, _ in self._selector.select(timeout):
      if key.data is not None:
        message = self._read(key.data)
        if message is not None:
          messages.append((key.data, message))
      elif key.fileobj is self._woken:
        with contextlib.suppress(BlockingIOError):
          self._woken.recv(4096)
      else:
        self._accept()
    return messages

  def wake(self) -> None:
    """Makes the `poll` under way return, or the next one."""
    with contextlib.suppress(OSError):  # Full: it is awake. Closed: nobody polls any more.
      self._waker.send(b'!')

  def drop(self, connection: Connection) -> None:
    """Forgets and closes a connection. Only who polls may call it."""
    self._selector.unregister(connection)
    connection.close()

  def close(self) -> None:
    """Closes every connection, and stops to listen; nobody may poll any more."""
    for key in list((self._selector.get_map() or {}).values()):
      key.fileobj.close()  # type: ignore[union-attr]
    self._waker.close()
    self._selector.close()

  def _accept(self) -> None:
    assert self._listener is not None
    try:
      self._add(self._listener.accept()[0])
    except OSError as error:  # It may have gone already.
      if error.errno in (errno.EMFILE, errno.ENFILE):
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise OSError(
          error.errno,
          f'another connection cannot be accepted ({error.strerror}; this process may have {allowed}'
          ' files and connections open): raise the limit (ulimit -n), or use fewer actors.',
        ) from error

  def _add(self, stream: socket.socket) -> None:
    stream.setblocking(False)
    connection = Connection(stream, self._max_bytes)
    self._selector.register(connection, selectors.EVENT_READ, connection)

  def _read(self, connection: Connection) -> bytes | None:
    try:
      return connection.receive()
    except BlockingIOError:
      return None
    except OSError as error:
      logging.debug('a connection ended: %s', error)
      self.drop(connection)
      return None


def _allow_many_connections() -> None:
  """Raises the limit that a shell sets, often 1,024, as far as this process may."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  if 0 <= soft < _OPEN_FILES:
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    with contextlib.suppress(ValueError, OSError):
      resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
