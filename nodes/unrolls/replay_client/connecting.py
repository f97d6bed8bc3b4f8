"""Connects to a replay server: by the Unix socket if it is on this machine, otherwise over TCP.

The replay node hands a client at its Unix socket a connection to Reverb itself, so what they say passes
no further process. Over TCP both sides prove by TLS that they are of this run, if it has a certificate.
"""

from __future__ import annotations

import socket
import time

from courier import sockets, tls
from nodes.runtime.replay_socket import HAND_OVER, unix_name
from nodes.unrolls.replay_client import errors
from nodes.unrolls.replay_client.http2 import Connection

_CONNECT_SECONDS = 5.0  # For each way to the server.


def connect(address: str, deadline: float | None = None) -> Connection:
  """Returns a connection to a server. A TLS handshake is left to its first use.

  Args:
    address: host:port.
    deadline: time of `time.monotonic`; None for `_CONNECT_SECONDS` a way.

  Raises:
    ReplayAwayError: if there is none.
    ValueError: if the address is malformed, or COURIER_TLS is wrong.
  """
  context = tls.client_context()
  problem: Exception = OSError('the host has no address')
  try:
    for stream, where in sockets.routes(address, unix_name):
      left = _CONNECT_SECONDS if deadline is None else deadline - time.monotonic()
      stream.settimeout(min(max(left, 0.001), _CONNECT_SECONDS))
      try:
        stream.connect(where)
        sockets.check_user(stream)
      except OSError as error:
        problem = error
        stream.close()
        continue
      if stream.family != socket.AF_UNIX:
        stream.setblocking(False)
        return Connection(stream, context)
      # A server that is still starting hands over nothing yet. Over TCP it would later be slower.
      return Connection(_handed_over(stream), None)
  except OSError as error:
    problem = error
  raise errors.ReplayAwayError(f'{address} cannot be connected to: {problem}') from problem


def _handed_over(near: socket.socket) -> socket.socket:
  """Returns the connection to Reverb for which a Unix socket of the server is asked."""
  with near:
    near.sendall(HAND_OVER)
    _, numbers, _, _ = socket.recv_fds(near, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if not numbers:
      raise ConnectionError('the server has handed over no connection')
    stream = socket.socket(fileno=numbers[0])
  stream.setblocking(False)
  return stream
