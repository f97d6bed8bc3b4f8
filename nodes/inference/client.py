"""Client of an inference server; retries each request until a reply arrives."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import dm_env
import numpy as np
from absl import logging

from courier import sockets, tls
from environments import nests
from nodes.inference import codec, shared_memory, unix_sockets
from nodes.inference.message_socket import MessageSocket
from nodes.runtime import lifecycle
from nodes.runtime.rpc import POLL_SECONDS, backoff

_CONNECT_SECONDS = 5.0


class Policy(Protocol):
  """Acts for one environment group: takes timesteps, and returns the actions of a server."""

  def send(self, timestep: dm_env.TimeStep, game_over: np.ndarray | None = None) -> None:
    """Requests actions without waiting for them; `game_over` is the environment's.

    The arrays must not change until the actions have been received.
    """

  def receive(self) -> np.ndarray | None:
    """Waits for the actions `[N, ...]`; returns None once training has finished.

    Raises:
      ValueError: if the server refuses the timestep, or a newer incarnation has replaced this one.
      lifecycle.Stopped: once the program stops.
    """

  def close(self) -> None:
    """Closes the connection."""


class ActingServer(Protocol):
  """Acts for environment groups: a `ServerAddress`, or an `InferenceServer` in this process."""

  def policy(
    self, actor_id: str, incarnation: int, group: int, should_stop: Callable[[], bool]
  ) -> Policy:
    """Returns a client.

    Args:
      actor_id: the actor, as declared to the server.
      incarnation: identifies this incarnation of the actor.
      group: index of its environment group.
      should_stop: polled while waiting for a reply.
    """


class Connectable(Protocol):
  """A server that accepts connections."""

  def connect(self) -> MessageSocket:
    """Returns a new connection. Raises OSError while no server listens."""


@dataclasses.dataclass(frozen=True)
class ServerAddress:
  """The address of a listening server.

  Attributes:
    address: host:port.
  """

  address: str

  def policy(
    self, actor_id: str, incarnation: int, group: int, should_stop: Callable[[], bool]
  ) -> RemotePolicy:
    """Returns a client; see `ActingServer`."""
    return RemotePolicy(self, actor_id, incarnation, group, should_stop)

  def connect(self) -> MessageSocket:
    """Returns a new connection, over a Unix socket if the server is on this machine and has one.

    Raises:
      OSError: while no server listens.
      ValueError: if COURIER_TLS is wrong.
    """
    context = tls.client_context()
    problem = OSError('the host has no address')
    for stream, where in sockets.routes(self.address, unix_sockets.name):
      try:
        stream.settimeout(_CONNECT_SECONDS)
        stream.connect(where)
        sockets.check_user(stream)
        sockets.wait_for_room(stream)  # A server that compiles reads nothing; see `RetryingClient`.
        return MessageSocket(stream, context=context)
      except BlockingIOError:  # Too many connections wait at the Unix socket.
        stream.close()
        raise
      except OSError as error:
        stream.close()
        if isinstance(error, PermissionError):
          logging.log_first_n(
            logging.INFO,
            'rows go over TCP, not over the Unix socket of %s: %s.',
            1,
            self.address,
            error,
          )
        problem = error
    raise problem


def packed(connection: MessageSocket, request: Sequence[Any]) -> bytes:
  """Returns a request as it goes over a connection.

  The first one goes whole, with memory for the large arrays of later ones if the connection can share
  memory. If the server has not mapped that by its first reply, later requests go whole as well.
  """
  if connection.may_share:
    connection.share(shared_memory.bytes_for(request))
  return codec.pack(*request, memory=connection.memory)


class RetryingClient:
  """Sends one request at a time and retries it until the reply arrives.

  A request has no deadline while the server's machine acknowledges packets: a server that compiles
  reads nothing for minutes. If the connection is lost or silent for too long, the client retries on a
  new connection. It retries with exponential back-off until the program stops. The server must be
  idempotent: it replies to a retry, but executes the request only once.
  """

  def __init__(
    self,
    server: Connectable,
    should_stop: Callable[[], bool],
    what: str,
    silent_seconds: float = 30.0,
  ):
    """Initialises a client; it connects with the first request.

    Args:
      server: receives the requests.
      should_stop: polled twice a second while waiting for a reply.
      what: names the client in the log.
      silent_seconds: seconds without a byte sent or received before a retry. The client retries only
        if the server's machine does not acknowledge packets either.
    """
    self._server = server
    self._should_stop = should_stop
    self._what = what
    self._silent_seconds = silent_seconds
    self._connection: MessageSocket | None = None
    self._request: Sequence[Any] = ()
    self._progressed = 0.0
    self._logged_wait = False  # Whether the long wait has been logged.

  def send(self, *request: Any) -> None:
    """Sends a request; waits for the connection and the network, but not for the reply.

    Args:
      *request: what `codec` packs. Arrays must not change until the reply has arrived.
    """
    self._request = request
    try:
      self._send(self._begin())
    except OSError as error:
      self._lose(error)

  def receive(self) -> bytes:
    """Waits for the reply.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """
    pauses = backoff()
    while True:
      try:
        connection = self._connection or self._begin()
        if not connection.unsent or self._send(connection):
          reply = self._receive(connection)
          if reply is not None:
            return reply
        self._check(connection)
      except OSError as error:
        self._lose(error)
        self._raise_if_stopping()
        time.sleep(next(pauses))

  def close(self) -> None:
    """Closes the connection."""
    if self._connection is not None:
      self._connection.close()
      self._connection = None

  def _begin(self) -> MessageSocket:
    """Starts to send the request, on a new connection if none is open."""
    if self._connection is None:
      self._connection = self._server.connect()
      self._connection.set_timeout(POLL_SECONDS)
    self._connection.begin(packed(self._connection, self._request))
    self._progressed = time.monotonic()
    self._logged_wait = False
    return self._connection

  def _send(self, connection: MessageSocket) -> bool:
    """Sends while the network accepts bytes; returns whether the whole request is sent."""
    try:
      while not connection.send_some():
        self._progressed = time.monotonic()
        if self._should_stop():
          return False
    except TimeoutError:
      return False
    return True

  def _receive(self, connection: MessageSocket) -> bytes | None:
    """Returns the reply; None if it is not complete yet."""
    try:
      reply = connection.receive()
    except TimeoutError:
      return None
    if reply is None:
      self._progressed = time.monotonic()
    return reply

  def _check(self, connection: MessageSocket) -> None:
    """Raises OSError if the server is lost, and Stopped if the program is stopping."""
    self._raise_if_stopping()
    if time.monotonic() - self._progressed < self._silent_seconds:
      return
    if not connection.peer_answers():
      raise TimeoutError(f'the machine has been silent for {self._silent_seconds:g} seconds')
    if not self._logged_wait:
      logging.info('%s waits: the server is up but busy', self._what)
      self._logged_wait = True

  def _lose(self, error: OSError) -> None:
    level = logging.INFO if self._connection is None else logging.WARNING  # It may be starting.
    failed = 'the TLS handshake has failed: ' if isinstance(error, tls.HandshakeError) else ''
    logging.log(level, 'retrying the request of %s: %s%s', self._what, failed, error)
    self.close()

  def _raise_if_stopping(self) -> None:
    if self._should_stop():
      raise lifecycle.Stopped from None


class RemotePolicy:
  """A `Policy` whose server is in another process."""

  def __init__(
    self,
    inference: Connectable,
    actor_id: str,
    incarnation: int,
    group: int,
    should_stop: Callable[[], bool],
  ):
    """Initialises a client.

    Args:
      inference: the inference server.
      actor_id: this process, as declared to the server.
      incarnation: identifies this incarnation of the process.
      group: index of its environment group.
      should_stop: polled while waiting for a reply.
    """
    self._conversation = RetryingClient(inference, should_stop, f'{actor_id}, group {group}')
    self._identity = (lifecycle.run_token(), actor_id, incarnation, group)
    self._sequence = -1

  def send(self, timestep: dm_env.TimeStep, game_over: np.ndarray | None = None) -> None:
    """Requests actions without waiting for them; `game_over` is the environment's."""
    self._sequence += 1
    arrays = nests.arrays_of(timestep)
    games = () if game_over is None else (game_over,)
    self._conversation.send(*self._identity, self._sequence, *arrays, *games)

  def receive(self) -> np.ndarray | None:
    """Waits for the actions `[N, ...]`; returns None once training has finished.

    Raises:
      ValueError: if the server refuses the timestep, or a newer incarnation has replaced this one.
      lifecycle.Stopped: once `should_stop` returns True.
    """
    action, *refusal = codec.unpack(self._conversation.receive())
    if refusal:
      raise ValueError(refusal[0])
    return action

  def close(self) -> None:
    """Closes the connection."""
    self._conversation.close()
