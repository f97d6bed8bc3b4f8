"""A server that reads the messages of many connections in one thread."""

from __future__ import annotations

import collections
import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from absl import logging

from courier import sockets, sparing, tls
from nodes.inference import codec, unix_sockets
from nodes.inference.in_process import InProcessConnection, Message
from nodes.inference.message_socket import MessageSocket
from nodes.runtime import lifecycle, listening, open_files

_HANDSHAKE_SECONDS = 10.0
# A handshake may take a millisecond, so a poll takes forward this many, or one for every eight requests
# if those are more. With a fixed number, thousands of actors would join a busy server over minutes.
_NEWCOMERS_AT_ONCE = 8
_SCRATCH = 64 << 10
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


Connection = MessageSocket | InProcessConnection
Arrived = tuple[Connection, bytes | Message]


class SocketServer:
  """Accepts connections and reads their messages, and takes those of threads in this process.

  One thread at a time calls `poll`; any thread may wake it, connect, or send on an accepted
  connection. `poll` also sends the rest of messages that a connection did not accept at once. While
  the process is at its limit of open files, new connections wait to be accepted.

  If the run has a certificate, connections over TCP use TLS. `poll` takes their handshakes forward as
  their bytes arrive.
  """

  def __init__(
    self, port: int | None = None, idle_seconds: float = 60.0, shared_memory: bool = True
  ):
    """Starts to listen; `poll` accepts connections.

    Args:
      port: on every interface; None to accept only connections from `connect`.
      idle_seconds: a connection that has never sent a message is dropped after this time without a
        byte.
      shared_memory: whether clients of this machine may connect over a Unix socket and share memory.

    Raises:
      OSError: if the port is in use.
      ValueError: if COURIER_TLS is wrong.
    """
    self._max_bytes = 0
    self._idle_seconds = idle_seconds
    self._context = None if port is None else tls.server_context()
    self._scratch = memoryview(bytearray(_SCRATCH))
    self._refusals = sparing.SparingLog(logging.get_absl_logger())
    # Where those without a finished handshake are, and their deadlines, earliest first.
    self._insecure: dict[MessageSocket, tuple[str, float]] = {}
    # Deadlines of connections that have never sent a message, earliest first.
    self._new: dict[MessageSocket, float] = {}
    self._unsent: collections.deque[MessageSocket] = collections.deque()
    self._here: set[InProcessConnection] = set()
    self._posted: collections.deque[tuple[InProcessConnection, Message]] = collections.deque()
    self._waits = False  # Whether the polling thread may be waiting for the sockets.
    self._warned = False
    self._selector = selectors.DefaultSelector()
    self._woken, self._waker = socket.socketpair()
    for end in (self._woken, self._waker):
      end.setblocking(False)
    self._selector.register(self._woken, _READ)
    self._shared_memory = shared_memory
    if port is not None:
      open_files.allow_many()
    listeners = [] if port is None else _listen(port, shared_memory)
    self._listeners = sockets.Listeners(self._selector, listeners)
    sockets.reset_in_child(self)

  def accept_messages_of(self, max_bytes: int) -> None:
    """Sets the maximum message size; a larger message closes its connection."""
    self._max_bytes = max_bytes

  def check_room(self, connections: int) -> None:
    """Checks the limit of open files against a number of connections, if the server listens.

    Accepts no shared memory if the limit has no room for that as well.

    Raises:
      lifecycle.NonRetryableError: if the limit is too low.
    """
    if not self._listeners.sockets:
      return
    left = open_files.left()
    # A mapping keeps a file open as well.
    if self._shared_memory and connections <= left < 2 * connections:
      self._shared_memory = False
      logging.info('rows come over sockets: this process may open %d more files only.', left)
    if connections > left:
      raise lifecycle.NonRetryableError(
        f'{connections} connections cannot be accepted (this process may have {open_files.limit()} '
        'files and connections open): raise the limit (ulimit -n), or use fewer actors.',
      )

  def connect(self) -> MessageSocket:
    """Returns a connection from this process. Raises OSError once closed."""
    near, far = socket.socketpair()
    far.setblocking(False)
    try:
      self._add(far)
    except (KeyError, ValueError):
      raise ConnectionError('the server no longer listens.') from None
    return MessageSocket(near)

  def connect_in_process(
    self, post: Callable[[InProcessConnection, Message], None] | None = None
  ) -> InProcessConnection:
    """Returns a connection from this process by which nothing is copied. Any thread may call it.

    Args:
      post: receives its messages; None to have `poll` return them.
    """
    connection = InProcessConnection(post or self._post, self._here.discard)
    self._here.add(connection)
    return connection

  def poll(self, timeout: float | None) -> list[Arrived]:
    """Returns the messages that have arrived; may be empty, after `timeout` seconds or earlier.

    `wake` ends the wait, as does internal housekeeping.
    """
    messages: list[Arrived] = []
    newcomers: list[tuple[MessageSocket, int]] = []
    listeners: list[Any] = []
    untidy = self._insecure or self._new or self._listeners.listen_again is not None
    if untidy:
      timeout = self._seconds_left(timeout)
    self._waits = True  # Before the look at what is posted, so that none is missed.
    selected = self._selector.select(0.0 if self._posted else timeout)
    self._waits = False
    for key, events in selected:
      if key.data is not None:
        if self._insecure and key.data in self._insecure:
          newcomers.append((key.data, events))
        else:
          self._exchange(key.data, events, messages)
      elif key.fileobj is self._woken:
        with contextlib.suppress(BlockingIOError):
          self._woken.recv(4096)
      else:
        listeners.append(key.fileobj)
    if newcomers or listeners:
      at_once = max(_NEWCOMERS_AT_ONCE, len(messages) // 8)
      for connection, events in newcomers[:at_once]:
        self._exchange(connection, events, messages)
      for listener in listeners:
        self._accept(listener, at_once)
    while self._unsent:
      self._await_room(self._unsent.popleft())
    if untidy:
      self._tidy()
    while self._posted:
      messages.append(self._posted.popleft())
    return messages

  @property
  def num_connections(self) -> int:
    """The number of accepted connections that are open; 0 once the server is closed."""
    keys = (self._selector.get_map() or {}).values()
    return sum(key.data is not None for key in keys)

  def wake(self) -> None:
    """Ends the wait of the current `poll`; if no thread polls, the next `poll` does not wait."""
    with contextlib.suppress(OSError):  # Full: already awake. Closed: no thread polls.
      self._waker.send(b'!')

  def send(self, connection: MessageSocket, message: bytes) -> None:
    """Sends a message on an accepted connection, without waiting.

    Ends the connection if it is lost or has not accepted the whole previous message.
    """
    try:
      connection.send(message)
    except BlockingIOError:
      self._unsent.append(connection)
      self.wake()
    except OSError:
      connection.give_up()

  def reply(self, connection: Connection, *values: Any) -> None:
    """Sends what `codec` packs on an accepted connection, without waiting; see `send`."""
    if isinstance(connection, InProcessConnection):
      connection.reply(*values)
    else:
      self.send(connection, codec.pack(*values))

  def drop(self, connection: MessageSocket) -> None:
    """Unregisters and closes a connection. Only the polling thread may call it."""
    self._selector.unregister(connection)
    self._insecure.pop(connection, None)
    self._new.pop(connection, None)
    connection.close()

  def close(self) -> None:
    """Closes every connection and stops listening. No thread may poll after it."""
    for connection in list(self._here):
      connection.close()
    self.reset()

  def reset(self) -> None:
    """Closes every file of this process; see `sockets.reset_in_child`."""
    for key in list((self._selector.get_map() or {}).values()):
      key.fileobj.close()  # type: ignore[union-attr]
    self._listeners.close()
    self._waker.close()
    self._selector.close()

  def _post(self, connection: InProcessConnection, message: Message) -> None:
    self._posted.append((connection, message))
    if self._waits:
      self.wake()

  def _exchange(self, connection: MessageSocket, events: int, messages: list[Arrived]) -> None:
    """Reads from a connection, adding a complete message to `messages`, and sends what it can take."""
    if events & _READ:
      message = self._read(connection)
      if message is not None:
        messages.append((connection, message))
    if events & _WRITE:
      self._send_rest(connection)

  def _accept(self, listener: socket.socket, at_most: int) -> None:
    try:
      for _ in range(at_most):
        stream, name = sockets.accept(listener)
        try:
          connection = self._add(stream)
        except OSError:
          stream.close()
          raise
        now = time.monotonic()
        if connection.is_secure:
          self._new[connection] = now + self._idle_seconds
        else:
          self._insecure[connection] = name, now + _HANDSHAKE_SECONDS
    except PermissionError as error:
      self._refuse('this machine', str(error))
    except OSError as error:  # None waits any more, or the peer has disconnected.
      if self._listeners.rest(error) and not self._warned:
        logging.warning(
          'new connections must wait until one ends (%s; this process may have %d files and '
          'connections open): raise the limit (ulimit -n), or use fewer actors.',
          error.strerror,
          open_files.limit(),
        )
        self._warned = True

  def _refuse(self, name: str, why: str) -> None:
    self._refusals.warn(why, f'refused a connection of an actor from {name}: {why}')

  def _seconds_left(self, timeout: float | None) -> float:
    """Returns `timeout`, or less if `_tidy` is due earlier."""
    again = self._listeners.listen_again
    ends = [] if again is None else [again]
    ends += [next(iter(self._new.values()))] if self._new else []
    ends += [next(iter(self._insecure.values()))[1]] if self._insecure else []
    left = max(0.0, min(ends) - time.monotonic())
    return left if timeout is None else min(timeout, left)

  def _tidy(self) -> None:
    """Drops connections that are late with their first message, and resumes listening after a pause."""
    now = time.monotonic()
    while self._insecure and (first := next(iter(self._insecure.items())))[1][1] <= now:
      self._refuse(first[1][0], f'no TLS handshake within {_HANDSHAKE_SECONDS:.0f} s')
      self.drop(first[0])
    while self._new and next(iter(self._new.values())) <= now:
      self.drop(next(iter(self._new)))
    self._listeners.end_rest_if_due()

  def _add(self, stream: socket.socket) -> MessageSocket:
    max_shared_bytes = self._max_bytes if self._shared_memory else 0
    connection = MessageSocket(
      stream, self._max_bytes, max_shared_bytes, self._context, self._scratch
    )
    self._selector.register(connection, _READ, connection)
    return connection

  def _read(self, connection: MessageSocket) -> bytes | None:
    try:
      message = connection.receive()
    except BlockingIOError:
      message = None
    except OSError as error:
      if isinstance(error, tls.HandshakeError):
        self._refuse(self._insecure[connection][0], str(error))
      logging.debug('a connection ended: %s', error)
      self.drop(connection)
      return None
    if self._insecure and connection.is_secure and connection in self._insecure:
      del self._insecure[connection]
      self._new[connection] = 0.0  # Until the next line.
    if self._new and self._new.pop(connection, None) is not None and message is None:
      self._new[connection] = time.monotonic() + self._idle_seconds
    return message

  def _await_room(self, connection: MessageSocket) -> None:
    """Makes `poll` send the rest of a message once its connection has room."""
    with contextlib.suppress(KeyError, ValueError):  # Already dropped.
      self._selector.modify(connection, _READ | _WRITE, connection)

  def _send_rest(self, connection: MessageSocket) -> None:
    try:
      while not connection.send_some():
        pass
    except BlockingIOError:
      return
    except OSError:
      connection.give_up()
    with contextlib.suppress(KeyError, ValueError):  # `_read` has dropped it.
      self._selector.modify(connection, _READ, connection)


def _listen(port: int, shared_memory: bool) -> list[socket.socket]:
  """Returns what to accept connections from."""
  # First, since clients try it first.
  near = unix_sockets.listen(port) if shared_memory else None
  try:
    anywhere = listening.listen(port)
  except OSError:
    if near is not None:
      near.close()
    raise
  return [anywhere] if near is None else [near, anywhere]
