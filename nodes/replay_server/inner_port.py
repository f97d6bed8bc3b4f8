"""The port on which Reverb itself listens, which only this process is to reach.

Reverb listens on every interface, and authenticates nobody. It cannot be configured to do otherwise.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator

from nodes.runtime import listening

_LISTENING = '0A'  # In /proc/net/tcp.
_LOOPBACK = b'lo'


class InnerPort:
  """A port that no other process can take, but Reverb in this process can.

  Reverb shares an occupied port with whoever has it, without a word. A socket that is bound and does
  not listen keeps others away.

  Attributes:
    number: the port.
  """

  def __init__(self) -> None:
    """Takes a free port.

    Raises:
      OSError: if there is none.
    """
    (self._held,) = listening.bind_ports(1)
    self.number: int = self._held.getsockname()[1]

  @contextlib.contextmanager
  def lent(self) -> Iterator[None]:
    """Lets sockets of this user listen on the port inside the block."""
    self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
      yield
    finally:
      self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)

  def restrict_to_loopback(self) -> None:
    """Has the sockets of this process that listen on the port accept local connections only.

    Raises:
      OSError: if that is not possible, or a connection from elsewhere was faster.
    """
    restricted = 0
    for listener in _listeners(self.number):
      with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK)
        restricted += 1
    if not restricted:
      raise OSError(f'Reverb does not listen on port {self.number}')
    for peer in _peers(self.number):
      if not peer.is_loopback:
        raise OSError(f'{peer} has connected to Reverb before its port was closed to the network')


def _listeners(port: int) -> Iterator[socket.socket]:
  """Yields duplicates of this process's sockets that listen on a port."""
  for name in os.listdir('/proc/self/fd'):
    with contextlib.suppress(OSError):
      if not os.readlink(f'/proc/self/fd/{name}').startswith('socket:'):
        continue
      found = socket.socket(fileno=os.dup(int(name)))
      listens = (
        found.family in (socket.AF_INET, socket.AF_INET6)
        and found.getsockname()[1] == port
        and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
      )
      if listens:
        yield found
      else:
        found.close()


def _peers(port: int) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
  """Yields the other end of every connection to a port, half-open ones included."""
  for table in ('/proc/net/tcp', '/proc/net/tcp6'):
    with contextlib.suppress(FileNotFoundError), open(table) as f:
      for line in f.readlines()[1:]:
        _, local, remote, state = line.split()[:4]
        if int(local.rpartition(':')[2], 16) == port and state != _LISTENING:
          yield _address(remote.rpartition(':')[0])


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
  """Returns an address of /proc/net/tcp, which has 32-bit words in this machine's byte order."""
  words = (int(text[i : i + 8], 16) for i in range(0, len(text), 8))
  packed = b''.join(word.to_bytes(4, sys.byteorder) for word in words)
  if len(packed) == 4:
    return ipaddress.IPv4Address(packed)
  address = ipaddress.IPv6Address(packed)
  return address.ipv4_mapped or address
