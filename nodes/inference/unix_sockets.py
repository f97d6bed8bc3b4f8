"""Unix sockets beside the TCP port of a server, for clients on its machine.

Their names are abstract: they belong to the network namespace, as ports do, and leave no file behind.
"""

from __future__ import annotations

import ipaddress
import socket

from absl import logging

from courier import sockets


def listen(port: int) -> socket.socket | None:
  """Returns a Unix socket that listens beside a port; None, with a line in the log, if it cannot."""
  try:
    return sockets.listen_unix(_name(port))
  except OSError as error:
    logging.info('actors of this machine send their rows over TCP: no Unix socket (%s).', error)
    return None


def connect(host: str, port: int, timeout: float) -> socket.socket | None:
  """Returns a connection to a server of the same machine, network namespace and user.

  None if the host is another one, or no such server listens on a Unix socket.

  Raises:
    BlockingIOError: if too many connections wait to be accepted.
  """
  if not _is_here(host, port):
    return None
  stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
  try:
    stream.settimeout(timeout)
    stream.connect(_name(port))
    sockets.check_user(stream)
    return stream
  except BlockingIOError:
    stream.close()
    raise
  except PermissionError as error:
    logging.log_first_n(
      logging.INFO, 'rows go over TCP, not over the Unix socket of port %d: %s.', 1, port, error
    )
  except OSError:
    pass
  stream.close()
  return None


def _name(port: int) -> str:
  return f'\0launchpod-inference-{port}'


def _is_here(host: str, port: int) -> bool:
  """Returns whether a host is this network namespace; sends nothing."""
  try:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
      probe.connect(address)
      own = probe.getsockname()[0]
  except OSError:
    return False
  return own == address[0] or ipaddress.ip_address(own).is_loopback
