"""Listening and connecting: TCP, and a Unix socket beside it for clients of the same user and machine.

The Unix socket has an abstract name, which belongs to the network namespace as the port does and leaves
no file behind. The kernel says whose process is at its other end.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import selectors
import socket
import struct
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_BACKLOG = 4096  # Clients that return at one time to a restarted server; Linux's own limit.
_REST_SECONDS = 1.0
# Of an `accept` without a descriptor or memory for the connection.
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_CREDENTIALS = struct.Struct('3i')  # A struct ucred: process, user, group.
# Finds machines that have vanished: after 10 s of silence TCP sends up to 4 probes, 5 s apart, and it
# waits 30 s for the receipt of data, or for room if the other side reads nothing.
_LOST = {'TCP_KEEPIDLE': 10, 'TCP_KEEPINTVL': 5, 'TCP_KEEPCNT': 4, 'TCP_USER_TIMEOUT': 30_000}


def listen(bound: socket.socket) -> list[socket.socket]:
  """Starts to listen on a bound TCP socket; returns it, and a Unix socket beside it if possible."""
  bound.listen(_BACKLOG)
  listeners = [bound]
  bound.setblocking(False)
  if hasattr(socket, 'SO_PEERCRED'):
    with contextlib.suppress(OSError):  # Another process has the name. TCP is enough.
      listeners.append(listen_unix(_unix_name(bound.getsockname()[1])))
  return listeners


def listen_unix(name: str) -> socket.socket:
  """Returns a Unix socket that listens and does not block.

  Raises:
    OSError: if another process has the name.
  """
  listener = socket.socket(socket.AF_UNIX)
  try:
    listener.bind(name)
    listener.listen(_BACKLOG)
  except OSError:
    listener.close()
    raise
  listener.setblocking(False)
  return listener


def bind(port: int) -> socket.socket:
  """Returns a TCP socket bound to a port of every interface, over IPv6 and IPv4; 0 chooses a free port.

  Raises:
    OSError: if the port is in use.
  """
  if socket.has_dualstack_ipv6():
    bound = socket.socket(socket.AF_INET6)
    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
  else:
    bound = socket.socket(socket.AF_INET)
  try:
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(('', port))
  except OSError as error:
    bound.close()
    raise OSError(error.errno, f'port {port} cannot be listened on: {error.strerror}') from error
  return bound


def accept(listener: socket.socket) -> tuple[socket.socket, str]:
  """Returns the next connection, which does not block, and where its other side is, for a log.

  Raises:
    BlockingIOError: if there is none.
    PermissionError: if its process belongs to another user.
    OSError: if there is no file descriptor left for it.
  """
  stream, address = listener.accept()
  try:
    check_user(stream)
    _prepared(stream)
  except OSError:
    stream.close()
    raise
  if not isinstance(address, tuple):  # Of a Unix socket.
    return stream, 'this machine'
  return stream, f'{address[0].removeprefix("::ffff:")}:{address[1]}'


class Listeners:
  """Sockets that listen, in a selector; they rest for a second when no more can be accepted.

  Attributes:
    sockets: the sockets.
    listen_again: when they do after a rest, by `time.monotonic`; None while they listen.
  """

  def __init__(
    self, selector: selectors.BaseSelector, sockets: Iterable[socket.socket], data: Any = None
  ):
    """Registers sockets that do not block, with `data`, in a selector."""
    self.sockets = tuple(sockets)
    self.listen_again: float | None = None
    self._selector, self._data = selector, data
    self._register()

  def rest(self, error: OSError) -> bool:
    """Begins a rest if an error of `accept` asks for one; returns whether it does."""
    if error.errno not in _NO_MORE or self.listen_again is not None:
      return False
    for each in self.sockets:
      self._selector.unregister(each)
    self.listen_again = time.monotonic() + _REST_SECONDS
    return True

  def end_rest_if_due(self) -> None:
    """Listens again after a rest."""
    if self.listen_again is not None and time.monotonic() >= self.listen_again:
      self.listen_again = None
      self._register()

  def close(self) -> None:
    """Closes the sockets."""
    for each in self.sockets:
      each.close()

  def _register(self) -> None:
    for each in self.sockets:
      self._selector.register(each, selectors.EVENT_READ, self._data)


def routes(
  address: str, unix_name: Callable[[int], str] | None = None
) -> Iterator[tuple[socket.socket, Any]]:
  """Yields a socket, not yet connected, and an address for each way to a server; closes none of them.

  Args:
    address: host:port, or [host]:port for IPv6.
    unix_name: returns the abstract name of the Unix socket beside a port; None for that of courier.

  Raises:
    ValueError: if the address is not of that form.
    OSError: if the host is unknown.
  """
  host, _, port = address.rpartition(':')
  if not host or not port.isdecimal() or int(port) > 65535:
    raise ValueError(f'{address!r} is no address of a server; it needs to be host:port')
  found = socket.getaddrinfo(host.strip('[]'), int(port), type=socket.SOCK_STREAM)
  if hasattr(socket, 'SO_PEERCRED') and _is_here(*found[0]):
    yield _prepared(_make(socket.AF_UNIX)), (unix_name or _unix_name)(int(port))
  for family, *_, where in found:
    yield _prepared(_make(family)), where


_make: Callable[[int], socket.socket] = socket.socket


@contextlib.contextmanager
def made_by(make: Callable[[int], socket.socket]) -> Iterator[None]:
  """Has `make` return the sockets by which clients of this process connect, of a family, for streams.

  A socket stays in the network namespace in which it was made, and connects there.
  """
  global _make
  before, _make = _make, make
  try:
    yield
  finally:
    _make = before


def check_connected(stream: socket.socket) -> None:
  """Raises OSError if a connection has failed, or its server belongs to another user."""
  error = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
  if error:
    raise OSError(error, os.strerror(error))
  check_user(stream)


def check_user(stream: socket.socket) -> None:
  """Raises PermissionError if the other side of a Unix socket is a process of another user."""
  if stream.family == socket.AF_UNIX:
    packed = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user = _CREDENTIALS.unpack(packed)[1]
    if user != os.geteuid():
      raise PermissionError(f'it belongs to user {user}')


_reset_in_child: weakref.WeakSet[Any] = weakref.WeakSet()


def reset_in_child(owner: Any) -> None:
  """Calls `owner.reset()` in every forked child, to which no socket of the parent belongs.

  One that stayed open in the child would outlive the parent.
  """
  _reset_in_child.add(owner)


def _reset() -> None:
  for owner in list(_reset_in_child):
    owner.reset()


os.register_at_fork(after_in_child=_reset)


class Waker:
  """Wakes up a thread that polls; any thread may call it."""

  def __init__(self) -> None:
    self._reader, self._writer = socket.socketpair()
    self._reader.setblocking(False)
    self._writer.setblocking(False)
    reset_in_child(self)

  def fileno(self) -> int:
    """Returns a file descriptor that is readable after `wake`."""
    return self._reader.fileno()

  def wake(self) -> None:
    """Wakes up the thread."""
    with contextlib.suppress(OSError):  # It is full, so the thread wakes up anyway, or closed.
      self._writer.send(b'\0')

  def clear(self) -> None:
    """Takes note of all calls of `wake` so far."""
    with contextlib.suppress(BlockingIOError):
      self._reader.recv(4096)

  def close(self) -> None:
    """Closes both ends."""
    self._reader.close()
    self._writer.close()

  reset = close


def wait_for_room(stream: socket.socket) -> None:
  """Lets a connection wait for as long as the other side reads nothing, if its machine answers.

  Linux counts the answers to its probes for room as no receipt of data. A machine that has vanished then
  shows by unanswered probes and retransmits, which the owner of the connection has to look at.
  """
  if stream.family != socket.AF_UNIX and hasattr(socket, 'TCP_USER_TIMEOUT'):
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


def _prepared(stream: socket.socket) -> socket.socket:
  stream.setblocking(False)
  if stream.family != socket.AF_UNIX:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _LOST.items():
      if hasattr(socket, name):
        stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
  return stream


def _unix_name(port: int) -> str:
  return f'\0courier-{port}'


def _is_here(family: int, kind: int, protocol: int, name: str, address: Any) -> bool:
  """Returns whether an address is one of this network namespace; sends nothing."""
  try:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
      probe.connect(address)
      own = probe.getsockname()[0]
  except OSError:
    return False
  return own == address[0] or ipaddress.ip_address(own).is_loopback
