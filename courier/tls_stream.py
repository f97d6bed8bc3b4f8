"""A stream socket with TLS, which behaves as a socket does."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterable
from typing import Any

from courier.tls import HandshakeError

_CHUNK = 256 << 10  # Bytes that are encrypted before they are sent.
_SELF_SIGNED = 18  # OpenSSL's error for a self-signed certificate that is not trusted.
_NOT_TLS = ('WRONG_VERSION_NUMBER', 'HTTP_REQUEST', 'HTTPS_PROXY_REQUEST', 'UNSUPPORTED_PROTOCOL')


class TLSStream:
  """A connected socket with TLS on top, with the methods of a socket that connections use.

  The socket may be one that does not block, or one with a timeout. The first call of `send`, `sendmsg`
  or `recv_into` begins the handshake, and those calls go on with it. Until it is finished they raise
  what a socket raises that is not ready: BlockingIOError, or TimeoutError after the timeout. An
  unfinished handshake always waits for bytes to receive.

  One thread may receive while another one sends.

  Attributes:
    is_secure: whether the handshake is finished.
  """

  def __init__(self, raw: socket.socket, context: ssl.SSLContext, scratch: memoryview):
    """Initialises a stream.

    Args:
      raw: the socket, which its owner closes. It may not be connected yet.
      context: of the server or of the client; it decides which side this is.
      scratch: memory of the thread that receives.
    """
    self._raw = raw
    is_server = context.protocol == ssl.PROTOCOL_TLS_SERVER
    self._received = ssl.MemoryBIO()
    self._unsent = ssl.MemoryBIO()
    self._tls = context.wrap_bio(self._received, self._unsent, server_side=is_server)
    self._scratch = scratch
    self._lock = threading.Lock()  # OpenSSL's object is for one thread at a time.
    self._rest: Any = b''  # Encrypted bytes that the socket has not taken yet.
    self._taken = 0  # Bytes of the caller that are in `_unsent` or in `_rest`.
    self._heard = is_server  # Whether it is certain that the server accepts the client.
    self._failure = ''
    self.is_secure = False
    self.fileno = raw.fileno
    self.shutdown = raw.shutdown
    self.close = raw.close

  def pending(self) -> bool:
    """Returns whether `recv_into` may return bytes although the socket has none."""
    return bool(self._received.pending or self._tls.pending())

  def recv_into(self, memory: memoryview) -> int:
    """Fills memory with what has arrived; returns the number of bytes, 0 at the end of the stream.

    Raises:
      OSError: as a socket does.
      HandshakeError: if the handshake fails.
    """
    if not self.is_secure:
      self._shake()
    elif not self.pending() and not self._pull():
      return 0
    count = 0
    while True:
      try:
        with self._lock:
          while count < len(memory) and (not count or self.pending()):
            room = memory[count:] if count else memory
            size: int = self._tls.read(len(room), room)  # type: ignore[assignment]
            if not size:  # The other side has said that it sends no more.
              return count
            count += size
        self._heard = True
        return count
      except ssl.SSLWantReadError:
        if count:
          return count
        if self._raw.gettimeout() == 0:
          raise BlockingIOError from None
      except ssl.SSLError as error:
        raise (ConnectionError if self._heard else HandshakeError)(_why(error)) from None
      if not self._pull():
        return 0

  def send(self, data: Any) -> int:
    """Sends data; like `sendmsg`."""
    return self.sendmsg((data,))

  def sendmsg(self, buffers: Iterable[Any]) -> int:
    """Sends the first bytes of some buffers; returns their number once the socket has taken them.

    After a BlockingIOError or a TimeoutError some bytes may be encrypted already. The next call has to
    begin with the same ones.

    Raises:
      OSError: as a socket does.
      HandshakeError: if the handshake fails.
    """
    if not self.is_secure:
      self._shake()
    with self._lock:
      if not self._taken:
        data = _first(buffers)
        try:
          self._taken = self._tls.write(data)
        except ssl.SSLError as error:
          raise ConnectionError(_why(error)) from None
      self._push()
      count, self._taken = self._taken, 0
      return count

  def _shake(self) -> None:
    """Goes on with the handshake until it is finished."""
    while not self.is_secure:
      with self._lock:
        if not self._failure:
          self._failure = self._try_handshake()
        if self._failure:
          raise HandshakeError(self._failure)
        self._push()
      if not self.is_secure and not self._pull():
        raise HandshakeError('it has closed the connection')

  def _try_handshake(self) -> str:
    """Returns why the handshake has failed; '' if it has not, or not yet."""
    try:
      self._tls.do_handshake()
      self.is_secure = True
    except ssl.SSLWantReadError:
      pass
    except ssl.SSLError as error:
      with contextlib.suppress(OSError):
        self._push()  # It tells the other side.
      return _why(error)
    return ''

  def _pull(self) -> int:
    """Reads from the socket; returns the number of bytes."""
    try:
      count = self._raw.recv_into(self._scratch)
    except ConnectionResetError:
      if self._heard and self.is_secure:
        raise
      count = 0
    if not count and not self._heard:
      raise HandshakeError('it has closed the connection, and its log may say why')
    self._received.write(self._scratch[:count])
    return count

  def _push(self) -> None:
    """Sends what is encrypted. Raises BlockingIOError or TimeoutError if there is a rest."""
    while self._rest or self._unsent.pending:
      self._rest = self._rest or memoryview(self._unsent.read())
      self._rest = self._rest[self._raw.send(self._rest) :]


def _first(buffers: Iterable[Any]) -> Any:
  """Returns the first bytes of some buffers, at most `_CHUNK`, which are copied only to join buffers."""
  room, parts = _CHUNK, []
  for buffer in buffers:
    parts.append(buffer if len(buffer) <= room else memoryview(buffer)[:room])
    room -= len(parts[-1])
    if not room:
      break
  return parts[0] if len(parts) == 1 else b''.join(parts)


def _why(error: ssl.SSLError) -> str:
  """Returns why the other side was refused, or has refused this one."""
  reason = error.reason or str(error)
  if isinstance(error, ssl.SSLCertVerificationError):
    if error.verify_code == _SELF_SIGNED:
      return "its certificate is not this run's"
    return f'its certificate is not accepted: {error.verify_message}'
  if reason == 'PEER_DID_NOT_RETURN_A_CERTIFICATE':
    return 'it has no certificate'
  if reason in _NOT_TLS:
    return 'it does not use TLS 1.3'
  if '_ALERT_' in reason:
    return f'it refuses this side: {reason.partition("_ALERT_")[2].lower().replace("_", " ")}'
  return reason.lower().replace('_', ' ')
