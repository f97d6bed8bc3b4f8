"""Central inference: batches of timesteps in, actions out; core states stay on the device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import jax
import numpy as np
from acme import specs
from acme.utils import counting

from agents.agent import Agent
from agents.seeding import Seed
from agents.types import LAST, Nest, Unroll
from nodes.inference import batching, slots
from nodes.inference.actor_threads import ActorThreads
from nodes.inference.device import DeviceInference
from nodes.inference.in_process import InProcessPolicy, Message
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.message_socket import MessageSocket
from nodes.inference.rates import InferenceRates
from nodes.inference.request_decoder import Request, RequestDecoder
from nodes.inference.scheduler import RequestScheduler
from nodes.inference.serving import ActorThread, Serving
from nodes.inference.socket_server import Connection, SocketServer
from nodes.runtime import lifecycle
from nodes.runtime.counters import ActingCounters, ActingTotals
from nodes.runtime.watchdog import Watchdog
from nodes.unrolls.writer import make_writer


class Writer(Protocol):
  """Receives finished unrolls; implemented by `nodes.unrolls.writer.UnrollWriter`."""

  def compile(self, sizes: Iterable[int]) -> None:
    """Compiles for groups of these numbers of environments."""

  def start(self) -> None:
    """Starts writing."""

  def put(self, unrolls: Unroll, release: Callable[[], None]) -> None:
    """Queues unrolls `[N, L, ...]`; `release` is called once their arrays are free. Must not block."""

  def check(self) -> None:
    """Raises the error that stopped the writer, if any, or TimeoutError if it hangs."""

  def close(self) -> None:
    """Stops writing."""


class InferenceServer:
  """Serves actions to groups of environments and assembles their rows into unrolls.

  Groups are assigned to the actor devices round-robin and stay there, with their core states.

  Each group has its own connection and one request in flight, packed by `nodes.inference.codec`:

    run, actor_id, incarnation, group, sequence, step_type, reward, discount, observation

  and, where an episode is shorter than a game, the environment's `game_over`. The reply is one of:

  * the actions `[N, ...]`;
  * None, if training has finished;
  * None and a sentence, if the request is invalid or a newer incarnation has replaced the actor.

  A request whose `run` differs from the server's (`lifecycle.run_token`) is dropped with its
  connection. `sequence` counts the requests of one `incarnation` of the actor. A new incarnation
  replaces the current one, unless its own connection has already closed. A replacement resets the
  group's core state, partial unroll and running returns. Requests are idempotent: a retry gets the
  same reply and changes nothing, and a request from a replaced incarnation changes nothing either.
  Back-pressure: requests wait while replay accepts no unrolls.

  A few threads take turns. One listens until a batch is complete, then serves it while the next one
  listens. With a single thread there are no wake-ups between threads. On CPUs, a thread of this process
  that completes a batch by its request serves it itself.
  """

  def __init__(
    self,
    agent: Agent,
    env_groups: Sequence[EnvGroupSpec],
    devices: Sequence[jax.Device],
    environment_spec: specs.EnvironmentSpec,
    *,
    writer: Writer | None,
    counter: counting.Counter,
    action_repeat: int,
    batch_size: int,
    timeout: float,
    seed: Seed,
    num_environments: int = 0,
    inbox: SocketServer | None = None,
    threads: int = 0,
    actors: Sequence[ActorThread] = (),
  ):
    """Initialises a server; call `set_params` and `compile` before `start`.

    Args:
      agent: the algorithm.
      env_groups: the environment groups to serve.
      devices: the actor devices.
      environment_spec: of one environment.
      writer: receives finished unrolls; the server starts and closes it. None if no group trains.
      counter: incremented by `actor_steps` and `environment_frames`.
      action_repeat: environment frames per actor step.
      batch_size: maximum number of environments in an inference batch.
      timeout: maximum seconds that a request waits for a fuller batch.
      seed: of action sampling.
      num_environments: training environments of the whole program; 0 for those of `env_groups`.
      inbox: receives requests; None to serve only this process.
      threads: that serve batches in turn; 0: see `num_threads`.
      actors: those of `env_groups` that are threads of this process.
    """
    self._writer = writer
    self._progress = ActingCounters(counter, action_repeat)
    self._listening = threading.Lock()
    self._threads: list[threading.Thread] = []
    self._watches: list[Watchdog] = []
    self._error: BaseException | None = None

    sizes = [s.num_envs for s in env_groups]
    training_sizes = [s.num_envs for s in env_groups if s.training]
    exploration = agent.exploration(num_environments or sum(training_sizes))
    self._exploration = float(exploration.min()), float(exploration.max())
    groups, device_slots = slots.assign(agent, env_groups, exploration, len(devices))
    requests = RequestDecoder(groups, environment_spec)
    self._inbox = inbox or SocketServer()
    self._inbox.accept_messages_of(requests.max_bytes)
    self._inbox.check_room(len(groups))
    buckets = batching.bucket_sizes(min(training_sizes or sizes), max(batch_size, *sizes))
    self._devices = [
      DeviceInference(agent, device, *placed, environment_spec, buckets, seed)
      for device, placed in zip(devices, device_slots, strict=True)
    ]
    self._batchers = [batching.Batcher[Request](buckets[-1], timeout) for _ in devices]
    self._scheduler = RequestScheduler(
      groups, requests, self._inbox, self._batchers, writer.put if writer is not None else None
    )
    self._clients_serve = clients_serve(devices)
    self._training_sizes = set(training_sizes)
    self._num_threads = threads or num_threads(devices)
    self._actors = ActorThreads(actors, self)
    serving_actors = len(actors) if self._clients_serve else 0
    self._rates = InferenceRates(self._devices, max(self._num_threads, serving_actors))

  def set_params(self, version: int, params: Nest) -> None:
    """Copies the parameters to every actor device."""
    for device in self._devices:
      device.set_params(version, params)

  def compile(self) -> None:
    """Compiles every batch size on every actor device, so that serving never compiles."""
    for device in self._devices:
      device.compile()
    if self._writer is not None:
      self._writer.compile(self._training_sizes)

  def start(self) -> None:
    """Starts writing unrolls, serving requests, and the actors of this process."""
    if self._writer is not None:
      self._writer.start()
    for i in range(self._num_threads):
      watch = Watchdog('a batch of inference')
      name = f'inference-{i}'
      thread = threading.Thread(target=self._work, args=(watch,), name=name, daemon=True)
      thread.start()
      self._threads.append(thread)
      self._watches.append(watch)
    self._actors.start()

  def policy(
    self, actor_id: str, incarnation: int, group: int, should_stop: Callable[[], bool]
  ) -> InProcessPolicy:
    """Returns a client for a thread of this process; see `ActingServer`.

    Raises:
      lifecycle.Stopped: if the server is closed.
      Exception: the error that stopped the writer or a serving thread.
    """
    self._check_open()
    connection = self._inbox.connect_in_process(self._submit if self._clients_serve else None)
    return InProcessPolicy(
      connection, actor_id, incarnation, group, should_stop, self._check_serving
    )

  def connect(self) -> MessageSocket:
    """Returns a connection from this process, over a socket.

    Raises:
      lifecycle.Stopped: if the server is closed.
      Exception: the error that stopped the writer or a serving thread. An OSError is the cause of a
        RuntimeError, because clients retry after an OSError.
    """
    try:
      self._check_open()
    except OSError as error:
      raise RuntimeError(f'the inference server has failed: {error}') from error
    return self._inbox.connect()

  def check(self) -> None:
    """Raises the error of the writer, a serving thread or an actor in this process.

    Raises TimeoutError if one of them hangs.
    """
    self._check_serving()
    self._actors.check()

  def _check_open(self) -> None:
    self._check_serving()
    if self._scheduler.closed:
      raise lifecycle.Stopped

  def _check_serving(self) -> None:
    if self._writer is not None:
      self._writer.check()
    if self._error is not None:
      raise self._error
    for watch in self._watches:
      watch.check()

  def finish_training(self) -> None:
    """Stops each actor at its next request; the server continues to serve evaluators."""
    self._scheduler.finish_training()

  def stop_writing(self) -> None:
    """Stops writing unrolls, if any; drops those that replay has not accepted."""
    if self._writer is not None:
      self._writer.close()

  def close(self) -> None:
    """Stops writing, serving and the actors of this process, and closes every connection.

    Drops unrolls that replay has not accepted, and pending requests without a reply.
    """
    self._actors.stop()
    self.stop_writing()
    self._scheduler.close()
    for thread in self._threads:
      thread.join(timeout=10.0)
    self._inbox.close()
    self._actors.join()

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
    return self._scheduler.num_deferred

  def totals(self) -> ActingTotals:
    """Returns the actors' totals since the start."""
    return self._progress.totals()

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns totals since the start, and rates and means over the last `seconds`."""
    return (
      {
        'rows_dropped': float(self._scheduler.rows_dropped),
        'restarts': float(self._scheduler.restarts),
        'deferred_requests': float(self.deferred_requests),
      }
      | self._progress.measure(seconds)
      | self._rates.measure(seconds)
      | self._actors.measure(seconds)
      | {'exploration_min': self._exploration[0], 'exploration_max': self._exploration[1]}
    )

  def _work(self, watch: Watchdog) -> None:
    """Serves batches until the server is closed; runs in each thread."""
    scheduler = self._scheduler
    try:
      while True:
        with self._listening:
          device, batch = scheduler.next_batch()
        if not batch:
          return
        with watch:
          self._serve(device, batch)
    except BaseException as error:
      self._error = error
      scheduler.close()

  def _submit(self, connection: Connection, message: Message) -> None:
    """Takes a request of a thread of this process, which serves the batch that it completes, if any."""
    try:
      device, batch = self._scheduler.submit(connection, message)
      if batch:
        self._serve(device, batch)
    except BaseException as error:
      self._error = error
      self._scheduler.close()
      raise

  def _serve(self, device: int, batch: list[Request]) -> None:
    """Acts for a batch and replies to it."""
    for request, answer in zip(batch, self._devices[device].serve(batch), strict=True):
      self._count(request)
      self._scheduler.finish(request, answer)
    self._batchers[device].served(batch)

  def _count(self, request: Request) -> None:
    """Counts the steps and episodes of a request of a training group."""
    env_group = request.env_group
    if not env_group.spec.training:
      return
    returns, lengths = env_group.episodes.observe(request.timestep, request.game_over)
    steps = int(np.count_nonzero(request.timestep.step_type != LAST))
    self._progress.add(ActingTotals(steps, len(returns), float(returns.sum()), int(lengths.sum())))


def clients_serve(devices: Sequence[jax.Device]) -> bool:
  """Returns whether threads of this process serve the batches that they complete.

  One that would wait for the CPU may as well compute. While an accelerator computes, an actor steps its
  other environments.
  """
  return devices[0].platform == 'cpu'


def num_threads(devices: Sequence[jax.Device]) -> int:
  """Returns how many threads serve these devices best.

  One thread listens and two keep an accelerator busy. On CPUs, more threads than devices do not help.
  """
  return len(devices) if devices[0].platform == 'cpu' else 1 + 2 * len(devices)


def make_server(
  serving: Serving,
  agent: Agent,
  devices: Sequence[jax.Device],
  environment_spec: specs.EnvironmentSpec,
  action_repeat: int,
  *,
  replay_addresses: Sequence[str] | None = None,
  counter: counting.Counter | None = None,
  inbox: SocketServer | None = None,
) -> InferenceServer:
  """Returns the server of a node; a restarted node draws other random numbers.

  Args:
    serving: what it serves; `actor_devices` and `one_core` are left to the caller.
    agent: the algorithm.
    devices: the actor devices.
    environment_spec: of one environment.
    action_repeat: environment frames per actor step.
    replay_addresses: host:port of each Reverb server; None if no group trains.
    counter: incremented by `actor_steps` and `environment_frames`; None for a new one.
    inbox: receives requests; None to serve only this process.
  """
  options, sinks, writer = serving.options, serving.sinks, None
  if replay_addresses is not None:
    writer = make_writer(
      agent,
      environment_spec,
      replay_addresses,
      sinks.audit_dir,
      serving.observers,
      sinks.unrolls_per_item,
      sinks.tables,
      sinks.recording,
    )
  return InferenceServer(
    agent,
    serving.env_groups,
    devices,
    environment_spec,
    writer=writer,
    counter=counter or counting.Counter(),
    action_repeat=action_repeat,
    batch_size=options.inference_batch_size,
    timeout=options.inference_timeout_ms / 1e3,
    seed=serving.seed.child('restart', lifecycle.restart_count()),
    num_environments=serving.num_environments,
    inbox=inbox or SocketServer(shared_memory=options.shared_memory),
    threads=options.inference_threads,
    actors=serving.actors,
  )
