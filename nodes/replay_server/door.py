"""The door to Reverb, which lets the run's own clients in.

Over TCP a client is let in by mutual TLS, if the run has a certificate. Over the Unix socket the
kernel says whose process it is, and the client can have a connection to Reverb handed over. Its bytes
then do not pass through the door.
"""

from __future__ import annotations

import contextlib
import functools
import selectors
import socket
import ssl
import time
from collections.abc import Iterable

from courier import sockets
from nodes.replay_server import relay

# A client on the Unix socket sends this byte to have a connection handed over. The byte comes back with
# the file descriptor of a TCP socket that is connected to Reverb.
HAND_OVER = b'\0'
# A client that has neither proved who it is nor said what it wants is turned away after this time, or
# once so many others have come after it.
_KNOCK_SECONDS = 10.0
_MOST_KNOCKS = 512
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Door:
  """Serves clients in the thread that calls `run`."""

  def __init__(self, listeners: Iterable[socket.socket], port: int, context: ssl.SSLContext | None):
    """Initialises the door.

    Args:
      listeners: sockets that listen, TCP or Unix; they do not block.
      port: of Reverb, on the loopback interface of this process.
      context: of TLS over TCP; None for plain TCP.
    """
    self._reverb = ('127.0.0.1', port)
    self._context = context
    # The data of a socket is a function of the socket and its events.
    self._selector = selectors.DefaultSelector()
    for listener in listeners:
      self._selector.register(listener, _READ, self._accept)
    self._knocks: dict[socket.socket, float] = {}  # Their deadlines, oldest first.
    self._ready: set[relay.Relay] = set()

  def run(self) -> None:
    """Serves; returns only by an exception, which is a defect."""
    block = memoryview(bytearray(relay.BLOCK_BYTES))
    while True:
      for key, events in self._selector.select(self._timeout()):
        key.data(key.fileobj, events)
      ready, self._ready = self._ready, set()
      for between in ready:
        self._move(between, block)
      self._turn_away_late_ones()

  def _timeout(self) -> float | None:
    if self._ready:
      return 0
    deadline = next(iter(self._knocks.values()), None)
    return None if deadline is None else max(deadline - time.monotonic(), 0)

  def _accept(self, listener: socket.socket, _: int) -> None:
    try:
      stream = sockets.accept(listener)
      if stream and stream.family != socket.AF_UNIX and self._context:
        stream = self._context.wrap_socket(stream, server_side=True, do_handshake_on_connect=False)
    except BlockingIOError:
      return
    except OSError:  # The client has gone, or there is no file descriptor left for it.
      time.sleep(0.01)
      return
    if stream is None:  # Another user's.
      return
    if stream.family != socket.AF_UNIX and not self._context:
      self._let_in(stream)
      return
    self._knocks[stream] = time.monotonic() + _KNOCK_SECONDS
    self._selector.register(stream, _READ, self._answer)

  def _turn_away_late_ones(self) -> None:
    now = time.monotonic()
    while self._knocks:
      stream, deadline = next(iter(self._knocks.items()))
      if now < deadline and len(self._knocks) <= _MOST_KNOCKS:
        return
      self._forget(stream)
      stream.close()

  def _forget(self, stream: socket.socket) -> None:
    self._selector.unregister(stream)
    del self._knocks[stream]

  def _answer(self, stream: socket.socket, _: int) -> None:
    try:
      first = b''
      if isinstance(stream, ssl.SSLSocket):
        stream.do_handshake()
      else:
        first = stream.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, ssl.SSLWantReadError):
      self._selector.modify(stream, _READ, self._answer)
      return
    except ssl.SSLWantWriteError:
      self._selector.modify(stream, _WRITE, self._answer)
      return
    except OSError:  # A stranger, or it has gone.
      self._forget(stream)
      stream.close()
      return
    self._forget(stream)
    if first == HAND_OVER:
      self._hand_over(stream)
    else:
      self._let_in(stream)

  def _connect(self) -> socket.socket:
    reverb = socket.socket()
    reverb.setblocking(False)
    reverb.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reverb.connect_ex(self._reverb)  # A failure shows at the first use.
    return reverb

  def _hand_over(self, stream: socket.socket) -> None:
    with stream, self._connect() as reverb:
      reverb.setblocking(True)
      with contextlib.suppress(OSError):  # The client has gone.
        socket.send_fds(stream, [HAND_OVER], [reverb.fileno()])

  def _let_in(self, client: socket.socket) -> None:
    self._ready.add(relay.Relay(client, self._connect()))

  def _wake(self, between: relay.Relay, stream: socket.socket, events: int) -> None:
    between.wake(stream, events)
    self._ready.add(between)

  def _move(self, between: relay.Relay, block: memoryview) -> None:
    try:
      if between.move(block):
        self._ready.add(between)
    except (EOFError, OSError):
      for stream in between.awaited():
        self._watch(stream, 0, between)
      between.close()
    else:
      for stream, events in between.awaited().items():
        self._watch(stream, events, between)

  def _watch(self, stream: socket.socket, events: int, between: relay.Relay) -> None:
    watched = self._selector.get_map().get(stream)
    if watched is None:
      if events:
        self._selector.register(stream, events, functools.partial(self._wake, between))
    elif not events:
      self._selector.unregister(stream)
    elif events != watched.events:
      self._selector.modify(stream, events, watched.data)
