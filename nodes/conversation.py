"""Questions to an inference server, asked until they are answered."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable
from typing import Protocol

from absl import logging

from nodes import lifecycle
from nodes.connection import Connection
from nodes.rpc import POLL_SECONDS, backoff


class Server(Protocol):
  """Whoever can be asked: `Remote`, or an `InferenceServer` of this process."""

  def connect(self) -> Connection:
    """Returns a new connection. Raises OSError while nobody listens."""


@dataclasses.dataclass(frozen=True)
class Remote:
  """A server that listens.

  Attributes:
    address: host:port.
  """

  address: str

  def connect(self) -> Connection:
    """Returns a new connection. Raises OSError while nobody listens."""
    host, port = self.address.rsplit(':', 1)
    return Connection(socket.create_connection((host.strip('[]'), int(port)), timeout=5.0))


class Conversation:
  """Asks one question at a time.

  A question that is overdue, or whose connection is lost, is asked again on another connection, at
  first at once and then with growing pauses, as long as the program runs. The server is to answer
  what is asked twice twice, and do it once.
  """

  def __init__(
    self, server: Server, should_stop: Callable[[], bool], what: str, overdue_seconds: float = 30.0
  ):
    """Initialises a conversation; it connects with the first question.

    Args:
      server: to be asked.
      should_stop: polled twice a second while an answer is awaited.
      what: the conversation in words, for the log.
      overdue_seconds: after which a question is asked again.
    """
    self._server = server
    self._should_stop = should_stop
    self._what = what
    self._overdue_seconds = overdue_seconds
    self._connection: Connection | None = None
    self._question = b''
    self._asked = 0.0

  def ask(self, question: bytes) -> None:
    """Asks, without waiting for more than the connection."""
    self._question = question
    try:
      self._send()
    except OSError as error:
      self._lose(error)

  def answer(self) -> bytes:
    """Waits for the answer.

    Raises:
      lifecycle.Stopped: when `should_stop` says so.
    """
    pauses = backoff()
    while True:
      try:
        if self._connection is None:
          self._send()
        answer = self._receive()
        if answer is not None:
          return answer
      except OSError as error:
        self._lose(error)
        self._stop_if_told()
        time.sleep(next(pauses))

  def close(self) -> None:
    """Ends the conversation."""
    if self._connection is not None:
      self._connection.close()
      self._connection = None

  def _send(self) -> None:
    self._asked = time.monotonic()
    if self._connection is None:
      self._connection = self._server.connect()
      self._connection.set_timeout(POLL_SECONDS)
    self._connection.send(self._question)

  def _receive(self) -> bytes | None:
    assert self._connection is not None
    try:
      return self._connection.receive()
    except TimeoutError:
      self._stop_if_told()
      if time.monotonic() - self._asked > self._overdue_seconds:
        raise TimeoutError(f'no answer within {self._overdue_seconds:g} seconds') from None
      return None

  def _lose(self, error: OSError) -> None:
    level = logging.INFO if self._connection is None else logging.WARNING  # It may yet be to come.
    logging.log(level, 'asking again, %s: %s', self._what, error)
    self.close()

  def _stop_if_told(self) -> None:
    if self._should_stop():
      raise lifecycle.Stopped from None
