"""The messages of many connections, read by one thread."""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import resource
import selectors
import socket
import time

from absl import logging

from nodes.inference.message_socket import MessageSocket
from nodes.runtime import lifecycle, listening

_OPEN_FILES = 1 << 16
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 1.0
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class SocketServer:
  """Accepts connections and reads their messages.

  One thread at a time polls; any may wake it, connect, or send on a connection that it has met. What a
  connection does not take at once is sent while polling. While the process can have no more
  connections, others wait to be accepted.
  """

  def __init__(self, port: int | None = None, idle_seconds: float = 60.0):
    """Begins to listen; `poll` accepts connections.

    Args:
      port: on every interface; None to be reached by `connect` alone.
      idle_seconds: without a byte, after which a connection is dropped that has never sent a message.

    Raises:
      OSError: if the port is in use.
    """
    self._max_bytes = 0
    self._idle_seconds = idle_seconds
    # When those that have never sent a message are dropped, the first of them first.
    self._new: dict[MessageSocket, float] = {}
    self._unsent: collections.deque[MessageSocket] = collections.deque()
    self._listens_again: float | None = None
    self._warned = False
    self._selector = selectors.DefaultSelector()
    self._woken, self._waker = socket.socketpair()
    for end in (self._woken, self._waker):
      end.setblocking(False)
    self._selector.register(self._woken, _READ)
    self._listener: socket.socket | None = None
    if port is not None:
      _allow_many_connections()
      self._listener = listening.listen(port)
      self._selector.register(self._listener, _READ)

  def accept_messages_of(self, max_bytes: int) -> None:
    """Sets how large a message may be; a larger one closes its connection."""
    self._max_bytes = max_bytes

  def check_room(self, connections: int) -> None:
    """Checks that this process may have so many connections, if it listens.

    Raises:
      lifecycle.NonRetryableError: if it may not.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if self._listener is None or allowed == resource.RLIM_INFINITY:
      return
    if len(os.listdir('/proc/self/fd')) + connections > allowed:
      raise lifecycle.NonRetryableError(
        f'{connections} connections cannot be accepted (this process may have {allowed} files and '
        'connections open): raise the limit (ulimit -n), or use fewer actors.',
      )

  def connect(self) -> MessageSocket:
    """Returns a connection from this process. Raises OSError once closed."""
    near, far = socket.socketpair()
    try:
      self._add(far)
    except (KeyError, ValueError):
      raise ConnectionError('the server no longer listens.') from None
    return MessageSocket(near)

  def poll(self, timeout: float | None) -> list[tuple[MessageSocket, bytes]]:
    """Returns the messages that have come, none after `timeout` seconds, a `wake`, or now and then."""
    messages = []
    untidy = self._new or self._listens_again is not None
    if untidy:
      timeout = self._seconds_left(timeout)
    for key, events in self._selector.select(timeout):
      if key.data is not None:
        if events & _READ:
          message = self._read(key.data)
          if message is not None:
            messages.append((key.data, message))
        if events & _WRITE:
          self._send_rest(key.data)
      elif key.fileobj is self._woken:
        with contextlib.suppress(BlockingIOError):
          self._woken.recv(4096)
      else:
        self._accept()
    while self._unsent:
      self._await_room(self._unsent.popleft())
    if untidy:
      self._tidy()
    return messages

  def wake(self) -> None:
    """Makes the `poll` under way return, or the next one."""
    with contextlib.suppress(OSError):  # Full: it is awake. Closed: no thread polls.
      self._waker.send(b'!')

  def send(self, connection: MessageSocket, message: bytes) -> None:
    """Sends a message on a connection that was met here, without waiting.

    One that is lost, or has not taken the message before, is ended: there is nothing to be said to it.
    """
    try:
      connection.send(message)
    except BlockingIOError:
      self._unsent.append(connection)
      self.wake()
    except OSError:
      connection.give_up()

  def drop(self, connection: MessageSocket) -> None:
    """Forgets and closes a connection. Only the polling thread may call it."""
    self._selector.unregister(connection)
    self._new.pop(connection, None)
    connection.close()

  def close(self) -> None:
    """Closes every connection and stops listening. No thread may poll after it."""
    for key in list((self._selector.get_map() or {}).values()):
      key.fileobj.close()  # type: ignore[union-attr]
    self._waker.close()
    self._selector.close()

  def _accept(self) -> None:
    assert self._listener is not None
    try:
      connection = self._add(self._listener.accept()[0])
    except OSError as error:  # It may have gone already.
      if error.errno in _NO_MORE:
        self._pause(self._listener, error)
    else:
      self._new[connection] = time.monotonic() + self._idle_seconds

  def _pause(self, listener: socket.socket, error: OSError) -> None:
    """Leaves those that want to connect where they are, for a while."""
    self._selector.unregister(listener)
    self._listens_again = time.monotonic() + _PAUSE_SECONDS
    if not self._warned:
      allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
      logging.warning(
        'another connection has to wait until one ends (%s; this process may have %d files and '
        'connections open): raise the limit (ulimit -n), or use fewer actors.',
        error.strerror,
        allowed,
      )
      self._warned = True

  def _seconds_left(self, timeout: float | None) -> float:
    """Returns `timeout`, or less if there is something for `_tidy` to do before."""
    ends = [] if self._listens_again is None else [self._listens_again]
    ends += [next(iter(self._new.values()))] if self._new else []
    left = max(0.0, min(ends) - time.monotonic())
    return left if timeout is None else min(timeout, left)

  def _tidy(self) -> None:
    """Drops connections that have been idle from the start, and listens again after a pause."""
    now = time.monotonic()
    while self._new and next(iter(self._new.values())) <= now:
      self.drop(next(iter(self._new)))
    if self._listens_again is not None and self._listens_again <= now:
      assert self._listener is not None
      self._listens_again = None
      self._selector.register(self._listener, _READ)

  def _add(self, stream: socket.socket) -> MessageSocket:
    stream.setblocking(False)
    connection = MessageSocket(stream, self._max_bytes)
    self._selector.register(connection, _READ, connection)
    return connection

  def _read(self, connection: MessageSocket) -> bytes | None:
    try:
      message = connection.receive()
    except BlockingIOError:
      return None
    except OSError as error:
      logging.debug('a connection ended: %s', error)
      self.drop(connection)
      return None
    if self._new and self._new.pop(connection, None) is not None and message is None:
      self._new[connection] = time.monotonic() + self._idle_seconds
    return message

  def _await_room(self, connection: MessageSocket) -> None:
    """Goes on with a message once its connection has room for more of it."""
    with contextlib.suppress(KeyError, ValueError):  # It has been dropped.
      self._selector.modify(connection, _READ | _WRITE, connection)

  def _send_rest(self, connection: MessageSocket) -> None:
    try:
      while not connection.send_some():
        pass
    except BlockingIOError:
      return
    except OSError:
      connection.give_up()
    with contextlib.suppress(KeyError, ValueError):  # Reading has found that it has ended.
      self._selector.modify(connection, _READ, connection)


def _allow_many_connections() -> None:
  """Raises the limit that a shell sets, often 1,024, as far as this process may."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  if 0 <= soft < _OPEN_FILES:
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    with contextlib.suppress(ValueError, OSError):
      resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
