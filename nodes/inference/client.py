"""The client of an inference server, which sends a request until it has a reply."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable
from typing import Protocol

import dm_env
import numpy as np
from absl import logging

from nodes.inference import codec
from nodes.inference.message_socket import MessageSocket
from nodes.runtime import lifecycle
from nodes.runtime.rpc import POLL_SECONDS, backoff


class Connectable(Protocol):
  """A server that accepts connections: a `ServerAddress`, or an `InferenceServer` of this process."""

  def connect(self) -> MessageSocket:
    """Returns a new connection. Raises OSError while no server listens."""


@dataclasses.dataclass(frozen=True)
class ServerAddress:
  """A server that listens.

  Attributes:
    address: host:port.
  """

  address: str

  def connect(self) -> MessageSocket:
    """Returns a new connection. Raises OSError while no server listens."""
    host, port = self.address.rsplit(':', 1)
    return MessageSocket(socket.create_connection((host.strip('[]'), int(port)), timeout=5.0))


class RetryingClient:
  """Asks one question at a time.

  A question is sent in full, however long the network takes. It stays where it is while the machine of
  the server answers, since a server that compiles reads nothing for minutes. One whose connection is
  lost, or has been silent for too long, is asked again on another connection, at first at once and then
  with growing pauses, as long as the program runs. The server is to answer what is asked twice twice,
  and do it once.
  """

  def __init__(
    self,
    server: Connectable,
    should_stop: Callable[[], bool],
    what: str,
    silent_seconds: float = 30.0,
  ):
    """Initialises a conversation; it connects with the first question.

    Args:
      server: to be asked.
      should_stop: polled twice a second while an answer is awaited.
      what: the conversation in words, for the log.
      silent_seconds: for which no byte has been sent or received, after which the question is asked
        again, if the server's machine does not answer either.
    """
    self._server = server
    self._should_stop = should_stop
    self._what = what
    self._silent_seconds = silent_seconds
    self._connection: MessageSocket | None = None
    self._question = b''
    self._progressed = 0.0
    self._patient = False  # Whether it has been said that the answer takes long.

  def send(self, question: bytes) -> None:
    """Asks, without waiting for more than the connection and the network."""
    self._question = question
    try:
      self._send(self._begin())
    except OSError as error:
      self._lose(error)

  def receive(self) -> bytes:
    """Waits for the answer.

    Raises:
      lifecycle.Stopped: when `should_stop` says so.
    """
    pauses = backoff()
    while True:
      try:
        connection = self._connection or self._begin()
        if not connection.unsent or self._send(connection):
          answer = self._receive(connection)
          if answer is not None:
            return answer
        self._check(connection)
      except OSError as error:
        self._lose(error)
        self._stop_if_told()
        time.sleep(next(pauses))

  def close(self) -> None:
    """Ends the conversation."""
    if self._connection is not None:
      self._connection.close()
      self._connection = None

  def _begin(self) -> MessageSocket:
    """Begins to send the question, on a new connection if there is none."""
    if self._connection is None:
      self._connection = self._server.connect()
      self._connection.set_timeout(POLL_SECONDS)
    self._connection.begin(self._question)
    self._progressed = time.monotonic()
    self._patient = False
    return self._connection

  def _send(self, connection: MessageSocket) -> bool:
    """Sends for as long as the network takes something; returns whether the question is sent."""
    try:
      while not connection.send_some():
        self._progressed = time.monotonic()
        if self._should_stop():
          return False
    except TimeoutError:
      return False
    return True

  def _receive(self, connection: MessageSocket) -> bytes | None:
    """Returns the answer; None if it has not come, or not all of it."""
    try:
      answer = connection.receive()
    except TimeoutError:
      return None
    if answer is None:
      self._progressed = time.monotonic()
    return answer

  def _check(self, connection: MessageSocket) -> None:
    """Raises an OSError if the server is lost, and Stopped if there is nothing more to ask."""
    self._stop_if_told()
    if time.monotonic() - self._progressed < self._silent_seconds:
      return
    if not connection.peer_answers():
      raise TimeoutError(f'the machine has been silent for {self._silent_seconds:g} seconds')
    if not self._patient:
      logging.info('waiting, %s: the server is there, but busy', self._what)
      self._patient = True

  def _lose(self, error: OSError) -> None:
    level = logging.INFO if self._connection is None else logging.WARNING  # It may yet be to come.
    logging.log(level, 'asking again, %s: %s', self._what, error)
    self.close()

  def _stop_if_told(self) -> None:
    if self._should_stop():
      raise lifecycle.Stopped from None


class RemotePolicy:
  """One stream's conversation with the inference server."""

  def __init__(
    self,
    inference: Connectable,
    actor_id: str,
    incarnation: int,
    group: int,
    should_stop: Callable[[], bool],
  ):
    """Initialises a conversation.

    Args:
      inference: the server, as it can be connected to.
      actor_id: this process, as declared to the server.
      incarnation: the identity of this life of the process.
      group: which of its environment groups.
      should_stop: polled while an answer is awaited.
    """
    self._conversation = RetryingClient(inference, should_stop, f'{actor_id}, group {group}')
    self._identity = (lifecycle.run_token(), actor_id, incarnation, group)
    self._sequence = -1

  def send(self, timestep: dm_env.TimeStep, game_over: np.ndarray | None = None) -> None:
    """Asks for actions, without waiting; `game_over` is the environment's."""
    self._sequence += 1
    games = () if game_over is None else (game_over,)
    self._conversation.send(codec.pack(*self._identity, self._sequence, *timestep, *games))

  def receive(self) -> np.ndarray | None:
    """Waits for the actions `[N, ...]`; None when the server says that training has finished.

    Raises:
      ValueError: if the server refuses the timestep, or serves another life of the actor instead.
      lifecycle.Stopped: when `should_stop` says so.
    """
    action, *refusal = codec.unpack(self._conversation.receive())
    if refusal:
      raise ValueError(refusal[0])
    return action

  def close(self) -> None:
    """Ends the conversation."""
    self._conversation.close()
