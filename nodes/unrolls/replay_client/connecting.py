"""Connects to a replay server: to the Unix socket if it is on this machine, otherwise over TCP and TLS."""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from courier import sockets
from nodes.unrolls.replay_client import errors
from nodes.unrolls.replay_client.http2 import Connection

# For each way to the server.
_CONNECT_SECONDS = 5.0


def connect(address: str, deadline: float | None = None) -> Connection:
  """Returns a connection to a server.

  Args:
    address: host:port.
    deadline: time of `time.monotonic`; None for that of a connection alone.

  Raises:
    ReplayAwayError: if there is none.
    ValueError: if the address is malformed.
  """
  problem: Exception = OSError('there is no address to connect to')
  try:
    for stream, where in sockets.routes(address):
      try:
        return Connection(_connected(stream, where, deadline))
      except OSError as error:
        problem = error
        stream.close()
  except OSError as error:
    problem = error
  raise errors.ReplayAwayError(f'{address} cannot be connected to: {problem}') from problem


def _connected(stream: socket.socket, where: Any, deadline: float | None) -> socket.socket:
  end = time.monotonic() + _CONNECT_SECONDS
  if deadline is not None:
    end = min(end, deadline)
  try:
    stream.connect(where)
  except BlockingIOError:
    _wait(stream, select.POLLOUT, end)
  sockets.check_connected(stream)
  return stream


def _wait(stream: socket.socket, event: int, end: float) -> None:
  poll = select.poll()
  poll.register(stream, event)
  if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
    raise TimeoutError('it did not connect in time')
