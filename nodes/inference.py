"""Central inference: batches of timesteps in, actions out; the core states stay on the device."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence

import jax
import numpy as np
from acme import specs
from acme.utils import counting

from agents.agent import Agent
from agents.types import LAST, Nest, Timestep, Unroll
from nodes import batching, rpc
from nodes.device_inference import DeviceInference
from nodes.layout import StreamSpec
from nodes.progress import Progress, Totals
from nodes.streams import Stream, UnrollAssembler


class InferenceServer:
  """Answers all streams of a program, and turns what they did into unrolls.

  Streams are spread over the actor devices in turn and stay there, with their core states.
  """

  def __init__(
    self,
    agent: Agent,
    streams: Sequence[StreamSpec],
    devices: Sequence[jax.Device],
    environment_spec: specs.EnvironmentSpec,
    emit: Callable[[Unroll, Callable[[], None]], None],
    counter: counting.Counter,
    action_repeat: int,
    batch_size: int,
    timeout: float,
    seed: int,
    num_environments: int = 0,
  ):
    """Initialises a server; `set_params` and `compile` come before `start`.

    Args:
      agent: the algorithm.
      streams: who will ask.
      devices: the actor devices.
      environment_spec: of one environment.
      emit: takes finished unrolls, fields `[N, L, ...]`, and a function to call once they are
        copied; must not block.
      counter: gets `actor_steps` and `environment_frames`.
      action_repeat: environment frames behind one actor step.
      batch_size: environments in an inference batch at most.
      timeout: seconds that a request may wait for a fuller batch.
      seed: of the action sampling.
      num_environments: training environments of the whole program; 0: those of `streams`.
    """
    observation = environment_spec.observations
    scalars = [((), np.dtype(t)) for t in (np.uint8, np.float32, np.float32)]
    self._declared = [*scalars, (tuple(observation.shape), np.dtype(observation.dtype))]
    self._emit = emit
    self._progress = Progress(counter, action_repeat)
    self._streams: dict[tuple[str, int], tuple[Stream, int, int]] = {}
    self._ready = threading.Event()
    self._finished = threading.Event()
    self._closed = threading.Event()
    self._connections = threading.Lock()
    self._statistics = threading.Lock()
    self._totals = {'rows_dropped': 0, 'restarts': 0}
    self._measured = (0, 0, 0, 0.0)

    sizes = [s.num_envs for s in streams]
    training_sizes = [s.num_envs for s in streams if s.training]
    exploration = agent.exploration(num_environments or sum(training_sizes))
    self._exploration = float(exploration.min()), float(exploration.max())
    on_device: list[list[np.ndarray]] = [[] for _ in devices]
    for index, spec in enumerate(streams):
      device = index % len(devices)
      first_slot = sum(map(len, on_device[device]))
      if spec.training:
        ids = slice(spec.first_environment_id, spec.first_environment_id + spec.num_envs)
        on_device[device].append(exploration[ids])
        assembler = UnrollAssembler(
          spec.num_envs, agent.unroll_rows, agent.unroll_period, spec.first_environment_id
        )
      else:
        on_device[device].append(np.full(spec.num_envs, agent.evaluation_exploration, np.float32))
        assembler = None
      self._streams[spec.actor_id, spec.group] = Stream(spec, assembler), device, first_slot
    buckets = batching.bucket_sizes(min(training_sizes or sizes), max(batch_size, *sizes))
    self._devices = [
      DeviceInference(
        agent,
        device,
        np.concatenate(on_device[i]) if on_device[i] else np.zeros(1, np.float32),
        environment_spec,
        buckets,
        timeout,
        seed,
      )
      for i, device in enumerate(devices)
    ]

  def set_params(self, version: int, params: Nest) -> None:
    """Makes parameters act on every actor device."""
    for device in self._devices:
      device.set_params(version, params)

  def compile(self) -> None:
    """Compiles for every actor device and batch size, so that nothing is compiled while serving."""
    for device in self._devices:
      device.compile()

  def start(self) -> None:
    """Begins to answer."""
    self._ready.set()

  def step(
    self,
    actor_id: str,
    run_id: int,
    group: int,
    sequence: int,
    step_type: np.ndarray,
    reward: np.ndarray,
    discount: np.ndarray,
    observation: np.ndarray,
  ) -> np.ndarray | None:
    """Takes one timestep of one stream and returns its actions.

    Idempotent: a request that is sent again, with the same `sequence`, gets the same answer and
    changes nothing. Blocks until the server is warm, and while replay takes no more unrolls.

    Args:
      actor_id: as in the stream's spec.
      run_id: of this life of the actor process, larger than those of earlier lives. With a new one, the
        actor's slots are wiped: core state, half-built unroll, running returns. A request of an earlier
        life, which may have waited in the network or for the server's start, changes nothing.
      group: of the actor's environment groups.
      sequence: counts the stream's requests from 0 in this run of the actor.
      step_type: uint8 `[N]`.
      reward: float32 `[N]`.
      discount: float32 `[N]`.
      observation: `[N, ...]`.

    Returns:
      `[N, ...]` actions; None when the actor is to stop, because training has finished or because
      another run of the actor has taken its place.

    Raises:
      ValueError: if the stream is unknown, an array has the wrong shape or dtype, or a reward or
        discount is not finite.
      RuntimeError: `rpc.away`, if another request has taken the place where this one waited.
    """
    if (actor_id, group) not in self._streams:
      raise ValueError(f'no environments were declared for {actor_id!r}, group {group}.')
    stream, device_index, first_slot = self._streams[actor_id, group]
    timestep = Timestep(step_type, reward, discount, observation)
    self._check(stream.spec, timestep)
    self._ready.wait()
    with stream.turn(run_id, sequence) as mine:
      if not mine:
        # Of copies of a request, the one that the actor still waits for may not be the last to get here.
        raise rpc.away()
      if (
        not self._admit(stream, run_id)
        or self._closed.is_set()
        or (stream.spec.training and self._finished.is_set())
      ):
        return None
      if sequence <= stream.sequence:
        return stream.reply
      request = batching.Request(timestep, first_slot, wipe=stream.fresh)
      try:
        version, action, extras, core_state = self._devices[device_index].batcher.answer(request)
      except batching.Closed:
        return None
      self._count(stream, timestep)
      if stream.assembler is not None:
        unroll = stream.assembler.append(
          timestep, action, extras, version, core_state, self._stopping
        )
        if unroll is not None:
          self._emit(unroll, functools.partial(stream.assembler.release, unroll))
      stream.sequence, stream.reply, stream.fresh = sequence, action, False
      return action

  @property
  def training_finished(self) -> bool:
    """Whether `finish_training` has been called."""
    return self._finished.is_set()

  def finish_training(self) -> None:
    """Tells the actors to stop, each with its next request. Evaluators go on being served."""
    self._finished.set()
    self._count_live_streams()

  def close(self) -> None:
    """Stops serving; every request from now on is answered None."""
    self._closed.set()
    self._ready.set()
    for device in self._devices:
      device.batcher.close()

  @property
  def actor_steps(self) -> int:
    """Agent decisions that an environment executed, evaluation not counted."""
    return self._progress.actor_steps

  def totals(self) -> Totals:
    """Returns what the actors have done since the start."""
    return self._progress.totals()

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns totals since the start, and rates and means over the last `seconds`."""
    with self._statistics:
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

  def _stopping(self) -> bool:
    return self._closed.is_set() or self._finished.is_set()

  def _count_live_streams(self) -> None:
    """Tells the devices how many streams may ask. An evaluator that pauses is not waited for."""
    with self._connections:
      live = [0] * len(self._devices)
      for stream, device, _ in self._streams.values():
        live[device] += stream.connected and stream.spec.training is not self._finished.is_set()
      for count, device_inference in zip(live, self._devices, strict=True):
        device_inference.batcher.live_streams = count

  def _check(self, spec: StreamSpec, timestep: Timestep) -> None:
    for name, value, (row, dtype) in zip(Timestep._fields, timestep, self._declared, strict=True):
      if value.shape != (spec.num_envs, *row) or value.dtype != dtype:
        raise ValueError(
          f'{spec.actor_id} sent {name} as {value.dtype}{list(value.shape)}, but its environment was '
          f'declared with {dtype}{[spec.num_envs, *row]}.'
        )
      if dtype.kind == 'f' and not np.isfinite(value).all():
        raise ValueError(f'an environment of {spec.actor_id} returned a {name} that is not finite.')

  def _admit(self, stream: Stream, run_id: int) -> bool:
    """Notes which life of the actor asks; False if a newer one has replaced it."""
    if run_id == stream.run_id:
      return True
    restart = stream.connected
    if not stream.admit(run_id):
      return False
    dropped = stream.assembler.wipe() if stream.assembler else 0
    if not restart:
      self._count_live_streams()
    with self._statistics:
      self._totals['restarts'] += restart
      self._totals['rows_dropped'] += dropped
    return True

  def _count(self, stream: Stream, timestep: Timestep) -> None:
    if not stream.spec.training:
      return
    returns, lengths = stream.episodes.observe(timestep)
    steps = int(np.count_nonzero(timestep.step_type != LAST))
    self._progress.add(Totals(steps, len(returns), float(returns.sum()), int(lengths.sum())))
