"""The server: one thread receives, a pool of threads runs the handlers."""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from courier import pool, sockets, sparing, status, tls, wire
from courier.handlers.python import pybind
from courier.status import StatusCode, StatusNotOk

if TYPE_CHECKING:
  import ssl

_log = logging.getLogger('courier')
_PREAMBLE_SECONDS = 10.0  # For the handshake and the preamble of a client, or it is disconnected.
_HANDSHAKES_AT_ONCE = 8  # Then the other clients have their turn, as each may take a millisecond.
_STUCK_SECONDS = 10.0  # Without the end of any call, while calls wait for a thread.
_LAST_REPLIES_SECONDS = 5.0  # For clients to take the last replies of a server that stops.


class Server:
  """Serves functions under their names to any number of clients, from `Start` to `Stop`."""

  def __init__(
    self,
    name: str | None = None,
    port: int | None = None,
    thread_pool_size: int = 16,
    *,
    data_only: bool = False,
  ):
    """Initialises a server.

    Args:
      name: has no effect; other versions have a name service.
      port: port to listen on; None chooses a free one.
      thread_pool_size: number of calls that run at once. Others wait for one of them to end.
      data_only: whether to refuse calls with pickled arguments, so that no client can run code here.
    """
    self._bound: socket.socket | None = None
    if port is None:
      self._bound = sockets.bind(0)
      port = self._bound.getsockname()[1]
    self._port: int = port
    self._handlers: dict[str, Callable[..., Any]] = {}
    self._pool = pool.Pool(thread_pool_size)
    self._data_only = data_only
    self._selector = selectors.DefaultSelector()
    self._waker = sockets.Waker()
    self._context: ssl.SSLContext | None = None
    self._thread: threading.Thread | None = None
    self._listeners: sockets.Listeners | None = None
    self._peers: set[_Peer] = set()
    # Those that have not sent a preamble yet, earliest deadline first.
    self._strangers: dict[_Peer, None] = {}
    self._unsent: collections.deque[_Peer] = collections.deque()  # Those with the rest of a reply.
    self._stopping = False
    self._warnings = sparing.SparingLog(_log)
    self._warned: set[str] = set()
    sockets.reset_in_child(self)

  @property
  def port(self) -> int:
    """The port."""
    return self._port

  @property
  def address(self) -> str:
    """The address for clients of this machine."""
    return f'localhost:{self._port}'

  @property
  def has_started(self) -> bool:
    """Whether `Start` has been called."""
    return self._thread is not None

  def Bind(self, method_name: str, py_func: Callable[..., Any]) -> None:
    """Serves a function, in place of one of the same name if there is one."""
    self.BindHandler(method_name, pybind.BuildPyCallHandler(py_func))

  def BindHandler(self, method_name: str, handler: Callable[..., Any]) -> None:
    """Serves a handler of `courier.handlers.python.pybind`."""
    self._handlers[method_name] = handler

  def Unbind(self, method_name: str) -> None:
    """Stops serving a function."""
    self._handlers.pop(method_name, None)

  def SetIsHealthy(self, is_healthy: bool) -> None:
    """Has no effect; other versions tell their load balancer. Raises ValueError before `Start`."""
    if not self.has_started:
      raise ValueError('Cannot set health status; server not started.')

  def Start(self) -> None:
    """Starts to serve; a server starts once.

    Raises:
      OSError: if the port is in use.
      ValueError: if the server has started before, or COURIER_TLS is wrong.
    """
    if self.has_started:
      raise ValueError('Server already started')
    self._context = tls.server_context()
    listening = sockets.listen(self._bound or sockets.bind(self._port))
    self._listeners = sockets.Listeners(self._selector, listening)
    self._selector.register(self._waker, selectors.EVENT_READ)
    self._thread = threading.Thread(target=self._serve, name='courier-server', daemon=True)
    self._thread.start()

  def Stop(self) -> None:
    """Closes the port, and waits until the calls that have arrived have ended.

    Clients send later calls to the next server on the port. Does not wait if a handler calls it.
    """
    if self._thread is None:
      raise ValueError('Server not started yet')
    self._stopping = True
    self._waker.wake()
    if not self._pool.is_own_thread():
      self._thread.join()

  def Join(self) -> None:
    """Waits until the server has stopped."""
    if self._thread is None:
      raise ValueError('Server not started')
    self._thread.join()

  def reset(self) -> None:
    """Gives up the port in a forked child, which does not serve."""
    if self._listeners is not None:
      self._listeners.close()
    if self._bound is not None:
      self._bound.close()

  def _serve(self) -> None:
    scratch, listeners = wire.scratch(), self._listeners
    assert listeners is not None
    while not self._stopping:
      watched = self._strangers or self._pool.num_waiting or listeners.listen_again is not None
      newcomers, listening = [], []
      for key, ready in self._selector.select(1.0 if watched else None):
        if key.fileobj in self._strangers:
          newcomers.append((key.fileobj, ready))
        elif isinstance(key.fileobj, _Peer):
          self._exchange(key.fileobj, ready)
        elif key.fileobj is self._waker:
          self._waker.clear()
          while self._unsent:
            self._watch(self._unsent.popleft(), selectors.EVENT_READ | selectors.EVENT_WRITE)
        elif isinstance(key.fileobj, socket.socket):
          listening.append(key.fileobj)
      # Others wait in the backlog of the port, where their deadline has not begun.
      room = max(1, _HANDSHAKES_AT_ONCE - len(newcomers))
      for listener in listening:
        self._accept(listeners, listener, scratch, room)
      for peer, ready in newcomers[:_HANDSHAKES_AT_ONCE]:
        self._exchange(peer, ready)
      if watched:
        self._check()
      listeners.end_rest_if_due()
    listeners.close()
    self._finish()

  def _accept(
    self, listeners: sockets.Listeners, listener: socket.socket, scratch: memoryview, room: int
  ) -> None:
    try:
      for _ in range(room):
        stream, name = sockets.accept(listener)
        connection = wire.Connection(stream, scratch, self._context)
        peer = _Peer(connection, name, time.monotonic() + _PREAMBLE_SECONDS)
        self._selector.register(peer, selectors.EVENT_READ)
        self._peers.add(peer)
        self._strangers[peer] = None
        peer.connection.flush()
    except BlockingIOError:
      pass
    except PermissionError as error:
      self._refuse('this machine', str(error))
    except OSError as error:
      if listeners.rest(error):
        self._warn_once('accept', f'no connection can be accepted: {error}')

  def _exchange(self, peer: _Peer, ready: int) -> None:
    """Receives from and sends to a client; drops it once the connection is lost or unusable."""
    try:
      if ready & selectors.EVENT_WRITE:
        with peer.lock:
          if peer.connection.flush():
            self._watch(peer, selectors.EVENT_READ)
      if ready & selectors.EVENT_READ:
        received = peer.connection.receive()
        if peer in self._strangers:
          with peer.lock:
            peer.connection.flush()  # The preamble, once the handshake is finished.
          if peer.connection.is_greeted:
            self._strangers.pop(peer, None)
        for message in received:
          self._take(peer, message)
    except tls.HandshakeError as error:
      self._refuse(peer.name, str(error))
      self._drop(peer)
    except OSError:
      self._drop(peer)
    except Exception:  # Such as a MemoryError.
      _log.exception('port %d: a client is disconnected', self._port)
      self._drop(peer)

  def _take(self, peer: _Peer, message: wire.Message) -> None:
    if message.kind == wire.CALL:
      peer.waiting[message.call] = message
      self._pool.put(functools.partial(self._handle, peer, message.call))
    elif message.kind == wire.CANCEL:
      peer.waiting.pop(message.call, None)
    elif message.kind == wire.LIST:
      self._reply(
        peer, wire.message(wire.RESULT, message.call, '', sorted(self._handlers), wire.DATA)
      )

  def _handle(self, peer: _Peer, number: int) -> None:
    """Runs a call, unless it has been cancelled or its client has gone; in a thread of the pool."""
    message = peer.waiting.pop(number, None)
    if message is None:
      return
    try:
      reply = wire.message(wire.RESULT, number, '', self._result(message), message.encoding)
    except StatusNotOk as error:
      reply = wire.Message(wire.ERROR, number, error.code.name, str(error).encode())
    except Exception as error:
      text = f'the result of {message.name} cannot be sent: {error}'
      reply = wire.Message(wire.ERROR, number, StatusCode.INVALID_ARGUMENT.name, text.encode())
    self._reply(peer, reply)

  def _result(self, message: wire.Message) -> Any:
    handler = self._handlers.get(message.name)
    if handler is None:
      raise StatusNotOk(f'method {message.name} not found', StatusCode.NOT_FOUND)
    try:
      args, kwargs = message.value(self._data_only)
    except Exception as error:
      text = f'the arguments of {message.name} cannot be read: {error}'
      raise StatusNotOk(text, StatusCode.INVALID_ARGUMENT) from error
    try:
      return handler(*args, **kwargs)
    except BaseException as error:  # Such as a SystemExit, which would end this thread alone.
      failure = status.of_handler(error)
      _log.error('%s', failure)
      raise failure from error

  def _reply(self, peer: _Peer, reply: wire.Message) -> None:
    with peer.lock:
      sent = peer.connection.send(reply)
    if not sent:
      self._unsent.append(peer)
      self._waker.wake()

  def _watch(self, peer: _Peer, events: int) -> None:
    if peer in self._peers:
      self._selector.modify(peer, events)

  def _drop(self, peer: _Peer) -> None:
    self._selector.unregister(peer)
    self._peers.discard(peer)
    self._strangers.pop(peer, None)
    peer.waiting.clear()
    with peer.lock:
      peer.connection.close()

  def _check(self) -> None:
    """Drops connections without a preamble; warns if calls wait for calls that do not end."""
    now = time.monotonic()
    for peer in list(itertools.takewhile(lambda peer: now > peer.deadline, self._strangers)):
      if not peer.connection.is_secure:
        self._refuse(peer.name, f'no TLS handshake within {_PREAMBLE_SECONDS:.0f} s')
      self._drop(peer)
    if self._pool.is_stuck(_STUCK_SECONDS):
      self._warn_once(
        'stuck',
        f'no call has ended for {_STUCK_SECONDS:.0f} s, and {self._pool.num_waiting} wait for a thread; '
        'if they wait for each other, give the server a larger thread_pool_size',
      )

  def _refuse(self, name: str, why: str) -> None:
    self._warnings.warn(why, f'port {self._port}: refused a connection from {name}: {why}')

  def _warn_once(self, kind: str, text: str) -> None:
    if kind not in self._warned:
      self._warned.add(kind)
      _log.warning('port %d: %s', self._port, text)

  def _finish(self) -> None:
    """Closes every connection once its last reply is sent."""
    for peer in list(self._strangers):
      self._drop(peer)
    self._pool.close()
    until = time.monotonic() + _LAST_REPLIES_SECONDS
    for peer in list(self._peers):
      with peer.lock:
        while not peer.connection.flush() and time.monotonic() < until:
          poll = select.poll()
          poll.register(peer.connection, select.POLLOUT)
          poll.poll(1e3 * max(0.0, until - time.monotonic()))
        peer.connection.close()
    self._peers.clear()
    self._selector.close()
    self._waker.close()


class _Peer:
  """A client.

  Attributes:
    connection: its connection; `lock` is for sending.
    name: where it is.
    waiting: its calls that no thread has begun, by number.
    deadline: time by which its handshake and its preamble have to be there.
  """

  def __init__(self, connection: wire.Connection, name: str, deadline: float):
    self.connection = connection
    self.name = name
    self.lock = threading.Lock()
    self.waiting: dict[int, wire.Message] = {}
    self.deadline = deadline

  def fileno(self) -> int:
    """Returns the file descriptor of the connection, for a selector."""
    return self.connection.fileno()
