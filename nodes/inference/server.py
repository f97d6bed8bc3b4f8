"""Central inference: batches of timesteps in, actions out; the core states stay on the device."""

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
  """Takes finished unrolls: a `nodes.unrolls.writer.UnrollWriter`."""

  def compile(self, sizes: Iterable[int]) -> None:
    """Gets ready for groups of so many environments."""

  def start(self) -> None:
    """Begins to write."""

  def put(self, unrolls: Unroll, release: Callable[[], None]) -> None:
    """Queues unrolls `[N, L, ...]`; `release` is called once they are copied. Must not block."""

  def check(self) -> None:
    """Raises what writing has failed with, if it has."""

  def close(self) -> None:
    """Stops writing."""


class InferenceServer:
  """Serves actions to groups of environments, and turns their rows into unrolls.

  Streams are spread over the actor devices in turn and stay there, with their core states.

  A stream sends one request at a time over a connection of its own, packed by `nodes.inference.codec`:

    run, actor_id, incarnation, group, sequence, step_type, reward, discount, observation

  and, where an episode is less than a game, the environment's `game_over`. It gets its actions
  `[N, ...]`; None if training has finished; or None and a sentence, if the request is bad, or another
  life of the actor has taken its place. A request with another `run` than the server's
  (`lifecycle.run_token`) is dropped with its connection. `sequence` counts the requests of one life of
  the actor, which `incarnation` identifies. A life that the server has not met takes the place of the
  one it serves, unless it has gone already: the stream's slots are wiped, which are core state,
  half-built unroll and running returns. Requests are idempotent: one that is sent again gets the same
  answer and changes nothing, and neither does one of a life that was replaced. While replay takes no
  more unrolls, requests wait.

  A few threads take turns: one listens, until a batch is complete, and then lets the next one listen
  while it serves the batch. With one thread, no thread has to wake another.
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
    """Initialises a server; `set_params` and `compile` come before `start`.

    Args:
      agent: the algorithm.
      streams: the groups of environments that it serves.
      devices: the actor devices.
      environment_spec: of one environment.
      writer: of finished unrolls, which the server starts and closes; None: no stream is trained on.
      counter: gets `actor_steps` and `environment_frames`.
      action_repeat: environment frames behind one actor step.
      batch_size: environments in an inference batch at most.
      timeout: seconds that a request may wait for a fuller batch.
      seed: of the action sampling.
      num_environments: training environments of the whole program; 0: those of `streams`.
      inbox: where requests come in; None: only from this process, see `connect`.
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
    # Beside the one that listens, two threads keep an accelerator busy; on CPUs there is nothing to
    # be gained by more threads than devices.
    self._num_threads = len(devices) if devices[0].platform == 'cpu' else 1 + 2 * len(devices)

  def set_params(self, version: int, params: Nest) -> None:
    """Makes parameters act on every actor device."""
    for device in self._devices:
      device.set_params(version, params)

  def compile(self) -> None:
    """Compiles for every actor device and batch size, so that nothing is compiled while serving."""
    for device in self._devices:
      device.compile()
    if self._writer is not None:
      streams = (stream.spec for stream in self._streams.values())
      self._writer.compile({spec.num_envs for spec in streams if spec.training})

  def start(self) -> None:
    """Begins to write and to answer."""
    if self._writer is not None:
      self._writer.start()
    for i in range(self._num_threads):
      thread = threading.Thread(target=self._work, name=f'inference-{i}', daemon=True)
      thread.start()
      self._threads.append(thread)

  def connect(self) -> MessageSocket:
    """Returns a connection from this process.

    Raises:
      lifecycle.Stopped: if the server has been closed.
      Exception: what it has failed with.
    """
    self.check()
    if self._closed.is_set():
      raise lifecycle.Stopped
    return self._inbox.connect()

  def check(self) -> None:
    """Raises what writing or serving has failed with, if it has."""
    if self._writer is not None:
      self._writer.check()
    if self._error is not None:
      raise self._error

  def finish_training(self) -> None:
    """Tells the actors to stop, each with its next request. Evaluators go on being served."""
    self._finished.set()
    self._count_live_streams()
    self._inbox.wake()

  def close(self) -> None:
    """Stops writing and serving, and ends every connection.

    Unrolls that replay has not taken are dropped, and requests are not answered.
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
    """Agent decisions that an environment executed, evaluation not counted."""
    return self._progress.actor_steps

  def totals(self) -> ActingTotals:
    """Returns what the actors have done since the start."""
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
    """Serves batches until the server is closed; the body of each thread."""
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
    """Listens until a batch may leave; returns a device's index and its batch, [] once closed."""
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
      logging.warning('a message that is no request was dropped: %r', error)
      self._inbox.drop(connection)
    else:
      self._consider(request)

  def _consider(self, request: Request) -> None:
    """Answers a request from what is known, or puts it where it is answered later."""
    stream = request.stream
    with stream.lock:
      served = request.incarnation == stream.incarnation
      if stream.spec.training and self._finished.is_set():
        self._inbox.send(request.connection, _FINISHED)
      elif not served and request.incarnation in stream.retired:
        self._inbox.send(request.connection, _replaced(stream))
      elif not served and request.connection.closed_by_peer():
        # A life that died while its request waited to be read; the next one may have been met.
        logging.info('a request of %s, which has gone, was dropped', stream.spec.actor_id)
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
    """Keeps a request until it is considered again; of several of a stream, the newest."""
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
    """Whether a row can be added to the stream's unrolls; emits what stands in the way if it may."""
    if stream.assembler is None or not stream.assembler.full:
      return True
    unroll = stream.assembler.take()
    if unroll is None:
      return False
    self._write(unroll, stream)
    return True

  def _finish(self, request: Request, answer: InferenceOutput) -> None:
    """Counts and keeps what a stream did, and answers it."""
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
    """Takes an unroll's arrays back, from any thread."""
    assert stream.assembler is not None
    stream.assembler.release(unroll)
    with stream.lock:
      held = stream.deferred
    if held is not None:
      self._inbox.wake()

  def _count_live_streams(self) -> None:
    """Tells the batchers how many streams may ask. An evaluator that pauses is not waited for."""
    live = [0] * len(self._batchers)
    for stream in self._streams.values():
      live[stream.device] += (
        stream.connected and stream.spec.training is not self._finished.is_set()
      )
    for count, batcher in zip(live, self._batchers, strict=True):
      batcher.live_streams = count

  def _admit(self, stream: EnvGroup, incarnation: int) -> None:
    """Begins to serve another life of an actor."""
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
  """Returns the answer to a life of an actor that is not served any more."""
  name = stream.spec.actor_id
  return codec.pack(None, f'another process acts as {name} now, so this one is to leave.')
