"""The door to Reverb, which lets the run's own clients in.

Over TCP a client is let in by mutual TLS, if the run has a certificate, and its bytes pass through the
door. At the Unix socket the kernel says whose process it is, and the client is handed a connection to
Reverb itself.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import selectors
import socket
import ssl
import time
from collections.abc import Iterable

from courier import sockets, tls
from courier.sparing import SparingLog
from courier.tls_stream import TLSStream
from nodes.replay_server import relay
from nodes.replay_server.relay import Stream
from nodes.runtime.replay_socket import HAND_OVER

# A client that has not proved who it is, or has said nothing, is turned away after this time, or once so
# many others have come after it.
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
    # Without a descriptor for another client, those that are in go on, and the next one waits.
    self._listeners = sockets.Listeners(self._selector, listeners, self._accept)
    self._knocks: dict[Stream, tuple[float, str]] = {}  # Their deadlines and names, oldest first.
    self._ready: set[relay.Relay] = set()
    self._block = memoryview(bytearray(relay.BLOCK_BYTES))
    self._encrypted = memoryview(bytearray(relay.BLOCK_BYTES))
    self._log = SparingLog(logging.getLogger(__name__))

  def run(self) -> None:
    """Serves; returns only by an exception, which is a defect."""
    while True:
      for key, events in self._selector.select(self._timeout()):
        key.data(key.fileobj, events)
      self._listeners.end_rest_if_due()
      ready, self._ready = self._ready, set()
      for between in ready:
        self._move(between)
      self._turn_away_late_ones()

  def _timeout(self) -> float | None:
    if self._ready:
      return 0
    knock, _ = next(iter(self._knocks.values()), (None, ''))
    due = [when for when in (knock, self._listeners.listen_again) if when is not None]
    return max(min(due) - time.monotonic(), 0) if due else None

  def _accept(self, listener: socket.socket, _: int) -> None:
    try:
      raw, name = sockets.accept(listener)
    except BlockingIOError:
      return
    except PermissionError as error:
      self._warn('this machine', str(error))
      return
    except OSError as error:
      self._log.warn('accept', f'replay can accept no connection: {error}')
      self._listeners.rest(error)
      return
    stream: Stream = raw
    if self._context and raw.family != socket.AF_UNIX:
      stream = TLSStream(raw, self._context, self._encrypted)
    self._knocks[stream] = (time.monotonic() + _KNOCK_SECONDS, name)
    self._selector.register(stream, _READ, self._answer)

  def _turn_away_late_ones(self) -> None:
    while self._knocks:
      stream, (deadline, name) = next(iter(self._knocks.items()))
      if time.monotonic() < deadline and len(self._knocks) <= _MOST_KNOCKS:
        return
      self._forget(stream)
      stream.close()
      self._warn(name, 'it has said nothing that lets it in')

  def _warn(self, name: str, why: str) -> None:
    self._log.warn((name.rpartition(':')[0], why), f'replay has refused a client at {name}: {why}')

  def _forget(self, stream: Stream) -> str:
    self._selector.unregister(stream)
    return self._knocks.pop(stream)[1]

  def _answer(self, stream: Stream, _: int) -> None:
    try:
      said = bytes(self._block[: stream.recv_into(self._block)])
    except BlockingIOError:
      return
    except tls.HandshakeError as error:
      self._warn(self._forget(stream), str(error))
      stream.close()
      return
    except OSError:
      said = b''
    self._forget(stream)
    if isinstance(stream, socket.socket) and stream.family == socket.AF_UNIX:
      self._hand_over(stream, said)
    elif said and (reverb := self._connect()):
      self._ready.add(relay.Relay(stream, reverb, said))
    else:  # It has gone, or has to come again.
      stream.close()

  def _connect(self) -> socket.socket | None:
    """Returns a connection to Reverb; None without a descriptor for it."""
    try:
      reverb = socket.socket()
    except OSError as error:
      self._log.warn('connect', f'replay can let in no other client: {error}')
      return None
    reverb.setblocking(False)
    reverb.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reverb.connect_ex(self._reverb)  # A failure shows at the first use.
    return reverb

  def _hand_over(self, stream: socket.socket, said: bytes) -> None:
    with stream:
      if said != HAND_OVER or (reverb := self._connect()) is None:
        return
      with reverb, contextlib.suppress(OSError):  # The client may be gone.
        reverb.setblocking(True)
        socket.send_fds(stream, [HAND_OVER], [reverb.fileno()])

  def _wake(self, between: relay.Relay, stream: Stream, events: int) -> None:
    between.wake(stream, events)
    self._ready.add(between)

  def _move(self, between: relay.Relay) -> None:
    try:
      if between.move(self._block):
        self._ready.add(between)
    except (EOFError, OSError):
      for stream in between.awaited():
        self._watch(stream, 0, between)
      between.close()
    else:
      for stream, events in between.awaited().items():
        self._watch(stream, events, between)

  def _watch(self, stream: Stream, events: int, between: relay.Relay) -> None:
    watched = self._selector.get_map().get(stream)
    if watched is None:
      if events:
        self._selector.register(stream, events, functools.partial(self._wake, between))
    elif not events:
      self._selector.unregister(stream)
    elif events != watched.events:
      self._selector.modify(stream, events, watched.data)
