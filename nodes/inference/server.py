"""Central inference: batches of timesteps in, actions out; core states stay on the device."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import jax
import numpy as np
from absl import logging
from acme import specs
from acme.utils import counting

from agents.agent import Agent
from agents.seeding import Seed
from agents.types import LAST, Nest, Unroll
from nodes.inference import batching, codec
from nodes.inference.device import DeviceInference, InferenceOutput
from nodes.inference.env_groups import EnvGroup
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.message_socket import MessageSocket
from nodes.inference.requests import Refused, Request, Requests
from nodes.inference.socket_server import SocketServer
from nodes.runtime import lifecycle
from nodes.runtime.counters import ActingCounters, ActingTotals
from nodes.unrolls.assembler import UnrollAssembler

_FINISHED = codec.pack(None)


class Writer(Protocol):
  """Receives finished unrolls; implemented by `nodes.unrolls.writer.UnrollWriter`."""

  def compile(self, sizes: Iterable[int]) -> None:
    """Compiles for groups of these numbers of environments."""

  def start(self) -> None:
    """Starts writing."""

  def put(self, unrolls: Unroll, release: Callable[[], None]) -> None:
    """Queues unrolls `[N, L, ...]`; `release` is called once they are copied. Must not block."""

  def check(self) -> None:
    """Raises the error that stopped the writer, if any."""

  def close(self) -> None:
    """Stops writing."""


class InferenceServer:
  """Serves actions to groups of environments and assembles their rows into unrolls.

  Streams are assigned to the actor devices round-robin and stay there, with their core states.

  Each stream has its own connection and one request in flight, packed by `nodes.inference.codec`:

    run, actor_id, incarnation, group, sequence, step_type, reward, discount, observation

  and, where an episode is shorter than a game, the environment's `game_over`. The reply is one of:

  * the actions `[N, ...]`;
  * None, if training has finished;
  * None and a sentence, if the request is invalid or a newer incarnation has replaced the actor.

  A request whose `run` differs from the server's (`lifecycle.run_token`) is dropped with its
  connection. `sequence` counts the requests of one `incarnation` of the actor. A new incarnation
  replaces the current one, unless its own connection has already closed. A replacement resets the
  stream's core state, partial unroll and running returns. Requests are idempotent: a retry gets the
  same reply and changes nothing, and a request from a replaced incarnation changes nothing either.
  Back-pressure: requests wait while replay accepts no unrolls.

  A few threads take turns. One listens until a batch is complete, then serves it while the next one
  listens. With a single thread there are no wake-ups between threads.
  """

  def __init__(
    self,
    agent: Agent,
    streams: Sequence[EnvGroupSpec],
    devices: Sequence[jax.Device],
    environment_spec: specs.EnvironmentSpec,
    writer: Writer | None,
    counter: counting.Counter,
    action_repeat: int,
    batch_size: int,
    timeout: float,
    seed: Seed,
    num_environments: int = 0,
    inbox: SocketServer | None = None,
  ):
    """Initialises a server; call `set_params` and `compile` before `start`.

    Args:
      agent: the algorithm.
      streams: the environment groups to serve.
      devices: the actor devices.
      environment_spec: of one environment.
      writer: receives finished unrolls; the server starts and closes it. None if no stream trains.
      counter: incremented by `actor_steps` and `environment_frames`.
      action_repeat: environment frames per actor step.
      batch_size: maximum number of environments in an inference batch.
      timeout: maximum seconds that a request waits for a fuller batch.
      seed: of action sampling.
      num_environments: training environments of the whole program; 0 for those of `streams`.
      inbox: receives requests; None to serve only this process, through `connect`.
    """
    self._writer = writer
    self._progress = ActingCounters(counter, action_repeat)
    self._streams: dict[tuple[str, int], EnvGroup] = {}
    self._deferred: list[EnvGroup] = []
    self._listening = threading.Lock()
    self._threads: list[threading.Thread] = []
    self._error: BaseException | None = None
    self._finished = threading.Event()
    self._closed = threading.Event()
    self._totals = {'rows_dropped': 0, 'restarts': 0}
    self._measured = (0, 0, 0, 0.0)

    sizes = [s.num_envs for s in streams]
    training_sizes = [s.num_envs for s in streams if s.training]
    exploration = agent.exploration(num_environments or sum(training_sizes))
    self._exploration = float(exploration.min()), float(exploration.max())
    on_device: list[list[np.ndarray]] = [[] for _ in devices]
    ids_on_device: list[list[np.ndarray]] = [[] for _ in devices]
    for index, spec in enumerate(streams):
      device = index % len(devices)
      first_slot = sum(map(len, on_device[device]))
      ids = np.arange(spec.first_environment_id, spec.first_environment_id + spec.num_envs)
      ids_on_device[device].append(ids)
      if spec.training:
        on_device[device].append(exploration[ids])
        assembler = UnrollAssembler(
          spec.num_envs, agent.unroll_rows, agent.unroll_period, spec.first_environment_id
        )
      else:
        on_device[device].append(np.full(spec.num_envs, agent.evaluation_exploration, np.float32))
        assembler = None
      self._streams[spec.actor_id, spec.group] = EnvGroup(spec, device, first_slot, assembler)
    self._requests = Requests(self._streams, environment_spec)
    self._inbox = inbox or SocketServer()
    self._inbox.accept_messages_of(self._requests.max_bytes)
    self._inbox.check_room(len(self._streams))
    buckets = batching.bucket_sizes(min(training_sizes or sizes), max(batch_size, *sizes))
    self._devices = [
      DeviceInference(
        agent,
        device,
        np.concatenate(on_device[i]) if on_device[i] else np.zeros(1, np.float32),
        np.concatenate(ids_on_device[i]) if on_device[i] else np.zeros(1, np.int32),
        environment_spec,
        buckets,
        seed,
      )
      for i, device in enumerate(devices)
    ]
    self._batchers = [batching.Batcher[Request](buckets[-1], timeout) for _ in devices]
    # One thread listens and two keep an accelerator busy. On CPUs, more threads than devices do not
    # help.
    self._num_threads = len(devices) if devices[0].platform == 'cpu' else 1 + 2 * len(devices)

  def set_params(self, version: int, params: Nest) -> None:
    """Copies the parameters to every actor device."""
    for device in self._devices:
      device.set_params(version, params)

  def compile(self) -> None:
    """Compiles every batch size on every actor device, so that serving never compiles."""
    for device in self._devices:
      device.compile()
    if self._writer is not None:
      streams = (stream.spec for stream in self._streams.values())
      self._writer.compile({spec.num_envs for spec in streams if spec.training})

  def start(self) -> None:
    """Starts writing unrolls and serving requests."""
    if self._writer is not None:
      self._writer.start()
    for i in range(self._num_threads):
      thread = threading.Thread(target=self._work, name=f'inference-{i}', daemon=True)
      thread.start()
      self._threads.append(thread)

  def connect(self) -> MessageSocket:
    """Returns a connection from this process.

    Raises:
      lifecycle.Stopped: if the server is closed.
      Exception: the error that stopped the writer or a serving thread.
    """
    self.check()
    if self._closed.is_set():
      raise lifecycle.Stopped
    return self._inbox.connect()

  def check(self) -> None:
    """Raises the error that stopped the writer or a serving thread, if any."""
    if self._writer is not None:
      self._writer.check()
    if self._error is not None:
      raise self._error

  def finish_training(self) -> None:
    """Stops each actor at its next request; the server continues to serve evaluators."""
    self._finished.set()
    self._count_live_streams()
    self._inbox.wake()

  def close(self) -> None:
    """Stops writing and serving, and closes every connection.

    Drops unrolls that replay has not accepted, and pending requests without a reply.
    """
    if self._writer is not None:
      self._writer.close()
    self._closed.set()
    self._inbox.wake()
    for thread in self._threads:
      thread.join(timeout=10.0)
    self._inbox.close()

  @property
  def actor_steps(self) -> int:
    """Agent decisions executed by training environments."""
    return self._progress.actor_steps

  @property
  def devices(self) -> Sequence[DeviceInference]:
    """Inference on each actor device, with its counts."""
    return self._devices

  @property
  def deferred_requests(self) -> int:
    """Requests that wait for replay, or for an earlier request for the same environments."""
    return len(self._deferred)

  def totals(self) -> ActingTotals:
    """Returns the actors' totals since the start."""
    return self._progress.totals()

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns totals since the start, and rates and means over the last `seconds`."""
    totals = {k: float(v) for k, v in self._totals.items()}
    batches = sum(d.batches for d in self._devices)
    rows = sum(d.rows for d in self._devices)
    capacity = sum(d.capacity for d in self._devices)
    busy = sum(d.busy_seconds for d in self._devices)
    now = (batches, rows, capacity, busy)
    d_batches, d_rows, d_capacity, d_busy = (
      a - b for a, b in zip(now, self._measured, strict=True)
    )
    self._measured = now
    return (
      totals
      | self._progress.measure(seconds)
      | {
        'inference_batches_per_second': d_batches / seconds,
        'inference_batch_rows': d_rows / d_batches if d_batches else float('nan'),
        'inference_batch_fill': d_rows / d_capacity if d_capacity else float('nan'),
        'inference_latency_ms': 1e3 * d_busy / d_batches if d_batches else float('nan'),
        'exploration_min': self._exploration[0],
        'exploration_max': self._exploration[1],
      }
    )

  def _work(self) -> None:
    """Serves batches until the server is closed; runs in each thread."""
    try:
      while True:
        with self._listening:
          device, batch = self._next_batch()
        if not batch:
          return
        for request, answer in zip(batch, self._devices[device].serve(batch), strict=True):
          self._finish(request, answer)
        self._batchers[device].served(batch)
    except BaseException as error:
      self._error = error
      self._closed.set()
      self._inbox.wake()

  def _next_batch(self) -> tuple[int, list[Request]]:
    """Listens until a batch is ready; returns its device's index and the batch, [] once closed."""
    while not self._closed.is_set():
      for device, batcher in enumerate(self._batchers):
        batch = batcher.take()
        if batch:
          return device, batch
      left = [s for b in self._batchers if (s := b.seconds_left()) is not None]
      for connection, message in self._inbox.poll(min(left, default=None)):
        self._take(connection, message)
      held, self._deferred = self._deferred, []
      for stream in held:
        request, stream.deferred = stream.deferred, None
        self._consider(request)
    return 0, []

  def _take(self, connection: MessageSocket, message: bytes) -> None:
    try:
      request = self._requests.unpack(message, connection)
    except Refused as error:
      self._inbox.send(connection, codec.pack(None, str(error)))
    except Exception as error:  # The sender is no actor.
      logging.warning('dropped an invalid message: %r', error)
      self._inbox.drop(connection)
    else:
      self._consider(request)

  def _consider(self, request: Request) -> None:
    """Replies at once if no inference is needed; otherwise batches or defers the request."""
    stream = request.stream
    with stream.lock:
      served = request.incarnation == stream.incarnation
      if stream.spec.training and self._finished.is_set():
        self._inbox.send(request.connection, _FINISHED)
      elif not served and request.incarnation in stream.retired:
        self._inbox.send(request.connection, _replaced(stream))
      elif not served and request.connection.closed_by_peer():
        # The incarnation died before its request was read; a newer one may already be connected.
        logging.info('dropped a request of %s, which has disconnected', stream.spec.actor_id)
      elif stream.in_flight is not None and request.key == stream.in_flight.key:
        stream.in_flight.connection = request.connection
      elif stream.in_flight is not None:
        self._defer(request)
      else:
        if not served:
          self._admit(stream, request.incarnation)
        if request.sequence <= stream.sequence:
          self._inbox.send(request.connection, stream.reply)
        elif self._has_room(stream):
          stream.in_flight = request
          self._batchers[stream.device].put(request)
        else:
          self._defer(request)

  def _defer(self, request: Request) -> None:
    """Keeps a request until it is considered again; keeps only a stream's newest request."""
    stream, held = request.stream, request.stream.deferred
    if held is None:
      self._deferred.append(stream)
    elif held.incarnation != request.incarnation:
      stream.retired.append(held.incarnation)
      self._inbox.send(held.connection, _replaced(stream))
    elif held.sequence > request.sequence:
      return
    stream.deferred = request

  def _has_room(self, stream: EnvGroup) -> bool:
    """Returns whether the stream's assembler has room for a row; first emits a full unroll if it can."""
    if stream.assembler is None or not stream.assembler.full:
      return True
    unroll = stream.assembler.take()
    if unroll is None:
      return False
    self._write(unroll, stream)
    return True

  def _finish(self, request: Request, answer: InferenceOutput) -> None:
    """Counts a stream's steps, appends its row and sends the reply."""
    stream = request.stream
    self._count(request)
    if stream.assembler is not None:
      unroll = stream.assembler.append(
        request.timestep, answer.action, answer.extras, answer.policy_version, answer.core_state
      )
      if unroll is not None:
        self._write(unroll, stream)
    reply = codec.pack(answer.action)
    with stream.lock:
      stream.sequence, stream.reply, stream.needs_reset = request.sequence, reply, False
      stream.in_flight = None
      connection, held = request.connection, stream.deferred
    self._inbox.send(connection, reply)
    if held is not None:
      self._inbox.wake()

  def _write(self, unroll: Unroll, stream: EnvGroup) -> None:
    assert self._writer is not None
    self._writer.put(unroll, functools.partial(self._release, stream, unroll))

  def _release(self, stream: EnvGroup, unroll: Unroll) -> None:
    """Returns an unroll's arrays to the assembler; any thread may call it."""
    assert stream.assembler is not None
    stream.assembler.release(unroll)
    with stream.lock:
      held = stream.deferred
    if held is not None:
      self._inbox.wake()

  def _count_live_streams(self) -> None:
    """Sets the number of live streams in each batcher, so that none waits for a paused evaluator."""
    live = [0] * len(self._batchers)
    for stream in self._streams.values():
      live[stream.device] += (
        stream.connected and stream.spec.training is not self._finished.is_set()
      )
    for count, batcher in zip(live, self._batchers, strict=True):
      batcher.live_streams = count

  def _admit(self, stream: EnvGroup, incarnation: int) -> None:
    """Starts to serve a new incarnation of an actor."""
    restart = stream.connected
    self._totals['rows_dropped'] += stream.admit(incarnation)
    self._totals['restarts'] += restart
    if not restart:
      self._count_live_streams()

  def _count(self, request: Request) -> None:
    stream = request.stream
    if not stream.spec.training:
      return
    returns, lengths = stream.episodes.observe(request.timestep, request.game_over)
    steps = int(np.count_nonzero(request.timestep.step_type != LAST))
    self._progress.add(ActingTotals(steps, len(returns), float(returns.sum()), int(lengths.sum())))


def _replaced(stream: EnvGroup) -> bytes:
  """Returns the reply to a replaced incarnation of an actor."""
  name = stream.spec.actor_id
  return codec.pack(None, f'another process acts as {name} now, so this one must exit.')
