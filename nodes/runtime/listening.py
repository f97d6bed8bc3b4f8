"""Listens on a port over IPv6 and IPv4, or over IPv4 alone if the kernel has no IPv6.

This module uses only the standard library, because `launchers.ray.machines` sends it to machines by
value.
"""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Iterable

_BACKLOG = 4096  # Clients that return at one time to a restarted server; Linux's own limit.
# Above those of Ray's workers, below those of Kubernetes' services and of Linux's connections.
_PORTS = range(20_000, 30_000)


def listen(port: int) -> socket.socket:
  """Returns a socket that listens on a port of every interface, over IPv6 and IPv4 or IPv4 alone.

  Raises:
    OSError: if the port is in use.
  """
  listener = unbound_socket()
  try:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('', port))
    listener.listen(_BACKLOG)
  except OSError as error:
    listener.close()
    raise OSError(f'port {port} cannot be listened on: {error}.') from error
  listener.setblocking(False)
  return listener


def unbound_socket() -> socket.socket:
  """Returns a TCP socket for IPv6 and IPv4, or for IPv4 alone on a kernel without IPv6."""
  if not socket.has_dualstack_ipv6():
    return socket.socket(socket.AF_INET)
  both = socket.socket(socket.AF_INET6)
  both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
  return both


def bind_ports(count: int) -> list[socket.socket]:
  """Returns sockets bound to ports that no other process on this machine uses.

  The sockets do not listen. A server can bind the port once its socket is closed. Until then the kernel
  gives it to no other socket: connections, and servers without a port of their own, get higher ones.
  """
  chance = random.SystemRandom()
  ours = (chance.choice(_PORTS) for _ in range(count + len(_PORTS)))
  return bind_first(itertools.chain(ours, itertools.repeat(0, count)), count)


def bind_first(ports: Iterable[int], count: int) -> list[socket.socket]:
  """Returns sockets bound to the first free ones of some ports. They do not listen.

  Raises:
    OSError: if fewer than `count` ports are free.
  """
  bound: list[socket.socket] = []
  for port in ports:
    if len(bound) == count:
      break
    s = unbound_socket()
    try:
      s.bind(('', port))
      bound.append(s)
    except OSError:
      s.close()
  if len(bound) < count:
    close(bound)
    raise OSError(f'fewer than {count} ports are free')
  return bound


def close(bound: Iterable[socket.socket]) -> list[int]:
  """Closes bound sockets; returns their ports."""
  ports = []
  for s in bound:
    ports.append(s.getsockname()[1])
    s.close()
  return ports
