"""Requests of threads in the inference server's own process, whose arrays it gets as they are."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np

from environments import nests
from nodes.runtime import lifecycle
from nodes.runtime.rpc import POLL_SECONDS

# What the codec packs for other processes: the identity of a request, then its arrays.
Message = tuple[Any, ...]


class InProcessConnection:
  """What the server knows of a client in its own process, in place of a socket."""

  memory = None

  def __init__(
    self,
    post: Callable[[InProcessConnection, Message], None],
    forget: Callable[[InProcessConnection], None],
  ):
    """Initialises an open connection.

    Args:
      post: hands a message of this connection to the server.
      forget: is called with the connection when it is closed.
    """
    self._post, self._forget = post, forget
    self._replies: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    self._closed = False

  def request(self, message: Message) -> None:
    """Sends a message, whose arrays must not change until the reply has arrived."""
    self._post(self, message)

  def receive(self, timeout: float) -> Message | None:
    """Waits for the reply; returns None once the connection is closed. Raises `queue.Empty`."""
    return self._replies.get(timeout=timeout)

  def reply(self, *values: Any) -> None:
    """Sends what the codec would pack; any thread may call it."""
    self._replies.put(values)

  def closed_by_peer(self) -> bool:
    """Returns whether the connection is closed."""
    return self._closed

  def close(self) -> None:
    """Closes the connection, at either end; a client that waits learns of it at once."""
    self._closed = True
    self._forget(self)
    self._replies.put(None)


class InProcessPolicy:
  """A `Policy` whose server is in this process. It copies nothing, and never has to retry."""

  def __init__(
    self,
    connection: InProcessConnection,
    actor_id: str,
    incarnation: int,
    group: int,
    should_stop: Callable[[], bool],
    check: Callable[[], None],
  ):
    """Initialises a policy.

    Args:
      connection: to the server.
      actor_id: as declared to the server.
      incarnation: identifies this incarnation of the actor.
      group: index of its environment group.
      should_stop: polled while waiting for a reply.
      check: raises the error that stopped the server, if any.
    """
    self._connection = connection
    self._identity = (lifecycle.run_token(), actor_id, incarnation, group)
    self._sequence = -1
    self._should_stop, self._check = should_stop, check

  def send(self, timestep: dm_env.TimeStep, game_over: np.ndarray | None = None) -> None:
    """Requests actions; see `Policy`."""
    self._sequence += 1
    games = () if game_over is None else (game_over,)
    arrays = nests.arrays_of(timestep)
    self._connection.request((*self._identity, self._sequence, *arrays, *games))

  def receive(self) -> np.ndarray | None:
    """Waits for the actions; see `Policy`.

    Raises:
      Exception: the error that stopped the server; otherwise as `Policy`.
    """
    while True:
      try:
        reply = self._connection.receive(POLL_SECONDS)
        break
      except queue.Empty:
        if self._should_stop():
          raise lifecycle.Stopped from None
        self._check()
    if reply is None:
      self._check()
      raise lifecycle.Stopped
    action, *refusal = reply
    if refusal:
      raise ValueError(refusal[0])
    return action

  def close(self) -> None:
    """Closes the connection."""
    self._connection.close()
