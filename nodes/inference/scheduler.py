"""Decides what happens to each request: a reply at once, inference, or a wait."""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable, Sequence

from absl import logging

from agents.types import Unroll
from nodes.inference.batching import Batcher
from nodes.inference.device import InferenceOutput
from nodes.inference.env_groups import EnvGroup
from nodes.inference.in_process import InProcessConnection, Message
from nodes.inference.request_decoder import Refused, Request, RequestDecoder
from nodes.inference.socket_server import Connection, SocketServer


class RequestScheduler:
  """The state machine of the requests of every environment group.

  A request that needs no inference gets its reply at once. Another one joins a batch. It is deferred
  while an earlier request of its group is in flight, or while its group's assembler has no room.

  Attributes:
    rows_dropped: rows of unrolls that new incarnations of actors have cut off.
    restarts: new incarnations of actors that had connected before. Those of the evaluator are not
      counted, because each of its evaluations and videos connects as a new incarnation.
  """

  def __init__(
    self,
    env_groups: Sequence[EnvGroup],
    requests: RequestDecoder,
    inbox: SocketServer,
    batchers: Sequence[Batcher[Request]],
    write: Callable[[Unroll, Callable[[], None]], None] | None,
  ):
    """Initialises a scheduler without requests.

    Args:
      env_groups: the groups to serve.
      requests: decodes the requests of these groups.
      inbox: receives the requests and sends the replies.
      batchers: one for each actor device.
      write: receives finished unrolls `[N, L, ...]`, and what to call once replay has accepted them.
        Until then their arrays do not change. Must not block. None if no group trains.
    """
    self._env_groups = env_groups
    self._requests = requests
    self._inbox = inbox
    self._batchers = batchers
    self._write_unroll = write
    self._deferred: dict[EnvGroup, None] = {}  # A set in the order of its requests.
    # Deferred groups that may be served now. Considering all of thousands at each event would take
    # longer than serving them.
    self._ready: collections.deque[EnvGroup] = collections.deque()
    # Guards the state of the batchers, and the decisions on requests, between threads that take them.
    self._deciding = threading.Lock()
    self._listens_for_long = False
    self._live = [0] * len(batchers)
    self._counts_training = True
    self._finished = threading.Event()
    self._closed = threading.Event()
    self.rows_dropped = 0
    self.restarts = 0

  @property
  def num_deferred(self) -> int:
    """Number of deferred requests."""
    return len(self._deferred)

  @property
  def closed(self) -> bool:
    """Whether `close` has been called."""
    return self._closed.is_set()

  def finish_training(self) -> None:
    """Replies to each training group's next request that training has finished."""
    self._finished.set()
    self._inbox.wake()

  def close(self) -> None:
    """Makes `next_batch` return []."""
    self._closed.set()
    self._inbox.wake()

  def next_batch(self) -> tuple[int, list[Request]]:
    """Listens until a batch is ready; returns its device's index and the batch, [] once closed.

    One thread at a time may call it.
    """
    while not self._closed.is_set():
      with self._deciding:
        if self._counts_training and self._finished.is_set():
          self._count_live_groups()
        device, batch = self._ready_batch()
        if batch:
          return device, batch
        left = self._seconds_left()
        self._listens_for_long = left is None
      arrived = self._inbox.poll(left)
      with self._deciding:
        for connection, message in arrived:
          self._take(connection, message)
        self._consider_deferred()
    return 0, []

  def submit(self, connection: Connection, message: Message) -> tuple[int, list[Request]]:
    """Takes the message of a thread that serves a batch itself; any thread may call it.

    Returns:
      The index of a device and a batch for it, if one is ready; else [].
    """
    with self._deciding:
      self._take(connection, message)
      found = self._ready_batch()
      if self._listens_for_long and self._seconds_left() is not None:
        self._listens_for_long = False
        # The listening thread waits without a deadline. Woken, it serves this batch when that times out.
        self._inbox.wake()
    return found

  def finish(self, request: Request, output: InferenceOutput) -> None:
    """Appends a request's row to its group's unroll and sends the reply; any thread may call it."""
    env_group = request.env_group
    if env_group.assembler is not None:
      unroll = env_group.assembler.append(
        request.timestep, output.action, output.extras, output.policy_version, output.core_state
      )
      if unroll is not None:
        self._write(unroll, env_group)
    reply = (output.action,)
    with env_group.lock:
      env_group.sequence, env_group.reply, env_group.needs_reset = request.sequence, reply, False
      env_group.in_flight = None
      connection, held = request.connection, env_group.deferred
    self._inbox.reply(connection, *reply)
    if held is not None:
      self._call_back(env_group)

  def _ready_batch(self) -> tuple[int, list[Request]]:
    for device, batcher in enumerate(self._batchers):
      if batch := batcher.take():
        return device, batch
    return 0, []

  def _seconds_left(self) -> float | None:
    """Returns the seconds until the next batch times out; None if no request waits."""
    left = [s for b in self._batchers if (s := b.seconds_left()) is not None]
    return min(left, default=None)

  def _take(self, connection: Connection, message: bytes | Message) -> None:
    try:
      request = self._requests.unpack(message, connection)
    except Refused as error:
      self._inbox.reply(connection, None, str(error))
    except Exception as error:
      if isinstance(connection, InProcessConnection):  # Its actor sent something else than arrays.
        self._inbox.reply(connection, None, f'the server cannot read a timestep: {error!r}.')
      else:
        logging.warning('dropped an invalid message, whose sender is not an actor: %r', error)
        self._inbox.drop(connection)
    else:
      self._consider(request)

  def _consider(self, request: Request) -> None:
    """Replies at once if no inference is needed; otherwise batches or defers the request."""
    env_group = request.env_group
    with env_group.lock:
      served = request.incarnation == env_group.incarnation
      if env_group.spec.training and self._finished.is_set():
        self._inbox.reply(request.connection, None)
      elif not served and request.incarnation in env_group.retired:
        self._inbox.reply(request.connection, None, _replaced(env_group))
      elif (not served or env_group.holds(request.key)) and request.connection.closed_by_peer():
        # The incarnation died before its request was read; a newer one may already be connected. Or it
        # has sent the request again, and this copy arrives late.
        logging.info('dropped a request of %s, which has disconnected', env_group.spec.actor_id)
      elif env_group.in_flight is not None and request.key == env_group.in_flight.key:
        env_group.in_flight.connection = request.connection
      elif env_group.in_flight is not None:
        self._defer(request)
      else:
        if not served:
          self._admit(request)
        if request.sequence <= env_group.sequence:
          self._inbox.reply(request.connection, *env_group.reply)
        elif self._has_room(env_group):
          env_group.in_flight = request
          self._batchers[env_group.device].put(request)
        else:
          self._defer(request)

  def _consider_deferred(self) -> None:
    """Considers the deferred requests of the groups that may be served now; all after training."""
    while self._ready:
      self._reconsider(self._ready.popleft())
    if self._finished.is_set():
      for env_group in list(self._deferred):
        self._reconsider(env_group)

  def _reconsider(self, env_group: EnvGroup) -> None:
    request, env_group.deferred = env_group.deferred, None
    self._deferred.pop(env_group, None)
    if request is not None:
      self._consider(request)

  def _call_back(self, env_group: EnvGroup) -> None:
    """Has the deferred request of a group considered again; any thread may call it."""
    self._ready.append(env_group)
    self._inbox.wake()

  def _defer(self, request: Request) -> None:
    """Keeps a request until it is considered again; keeps only a group's newest request."""
    env_group, held = request.env_group, request.env_group.deferred
    if held is None:
      self._deferred[env_group] = None
    elif held.incarnation != request.incarnation:
      env_group.retired.append(held.incarnation)
      self._inbox.reply(held.connection, None, _replaced(env_group))
    elif held.sequence > request.sequence:
      return
    env_group.deferred = request

  def _admit(self, request: Request) -> None:
    """Starts to serve the incarnation of an actor that sent a request."""
    env_group = request.env_group
    restart = env_group.connected
    self.rows_dropped += env_group.admit(request.incarnation, request.sequence)
    self.restarts += restart and env_group.spec.training
    if not restart:
      self._live[env_group.device] += env_group.spec.training is self._counts_training
      self._set_live_groups()

  def _count_live_groups(self) -> None:
    """Counts the evaluator's groups as live from now on, in place of those that train."""
    self._counts_training = False
    self._live = [0] * len(self._batchers)
    for env_group in self._env_groups:
      self._live[env_group.device] += env_group.connected and not env_group.spec.training
    self._set_live_groups()

  def _set_live_groups(self) -> None:
    """Tells each batcher its number of live groups, so that none waits for a paused evaluator."""
    for count, batcher in zip(self._live, self._batchers, strict=True):
      batcher.live_groups = count

  def _has_room(self, env_group: EnvGroup) -> bool:
    """Returns whether the group's assembler has room for a row; first emits a full unroll if it can."""
    if env_group.assembler is None or not env_group.assembler.full:
      return True
    unroll = env_group.assembler.take()
    if unroll is None:
      return False
    self._write(unroll, env_group)
    return True

  def _write(self, unroll: Unroll, env_group: EnvGroup) -> None:
    assert self._write_unroll is not None
    self._write_unroll(unroll, functools.partial(self._release, env_group, unroll))

  def _release(self, env_group: EnvGroup, unroll: Unroll) -> None:
    """Returns an unroll's arrays to the assembler; any thread may call it."""
    assert env_group.assembler is not None
    env_group.assembler.release(unroll)
    with env_group.lock:
      held = env_group.deferred
    if held is not None:
      self._call_back(env_group)


def _replaced(env_group: EnvGroup) -> str:
  """Returns the sentence for a replaced incarnation of an actor."""
  return f'another process acts as {env_group.spec.actor_id} now, so this one must exit.'
