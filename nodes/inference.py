"""Central inference: batches of timesteps in, actions out; the core states stay on the device."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from acme import specs

from agents.agent import Agent
from agents.types import LAST, Nest, Timestep, Unroll
from nodes import batching
from nodes.layout import StreamSpec
from nodes.streams import CoreStateRows, Stream, UnrollAssembler


class DeviceInference:
  """Serves the streams of one actor device.

  `num_threads` batches are in flight at once: while the device works on one, the host assembles and
  answers others. The answer for an environment depends on that environment alone: its core state and
  its random numbers (drawn from the seed, its slot and how often it has asked) live in its slot.
  """

  def __init__(
    self,
    agent: Agent,
    device: jax.Device,
    exploration: np.ndarray,
    environment_spec: specs.EnvironmentSpec,
    buckets: Sequence[int],
    timeout: float,
    live_streams: Callable[[], int],
    seed: int,
    num_threads: int = 2,
  ):
    """Initialises the slots; `warm_up` compiles and `start` begins to serve.

    Args:
      agent: the algorithm.
      device: where to run it.
      exploration: float32 `[slots]`, one for each environment served here.
      environment_spec: of one environment.
      buckets: batch sizes to compile for, ascending; the last is the largest batch.
      timeout: seconds that a request may wait for a fuller batch.
      live_streams: returns how many streams of this device are alive.
      seed: of the action sampling.
      num_threads: batches in flight.
    """
    self._device = device
    self._spec = environment_spec
    self._buckets = list(buckets)
    self._num_slots = len(exploration)
    self._params: tuple[int, Nest] | None = None
    self._dispatch = threading.Lock()
    self.queue = batching.RequestQueue(self._buckets[-1], timeout, live_streams)
    put = lambda x: jax.device_put(x, device)  # noqa: E731
    self._core_state = put(agent.initial_core_state(self._num_slots))
    self._decisions = put(jnp.zeros(self._num_slots, jnp.uint32))
    self._initial_row = put(agent.initial_core_state(1))
    self._exploration = put(jnp.asarray(exploration, jnp.float32))
    self._key = put(jax.random.key(seed))
    self._jit_answer = jax.jit(_make_answer(agent), donate_argnums=(1, 2))
    self._threads = [
      threading.Thread(target=self._serve, name=f'inference-{device.id}-{i}', daemon=True)
      for i in range(num_threads)
    ]
    self.batches = 0
    self.rows = 0
    self.capacity = 0
    self.busy_seconds = 0.0

  @property
  def policy_version(self) -> int:
    """Version of the parameters that answer now; -1 before the first."""
    return self._params[0] if self._params else -1

  def set_params(self, version: int, params: Nest) -> None:
    """Makes parameters act, from the next batch on. They are copied from device to device."""
    self._params = version, jax.device_put(params, self._device)

  def warm_up(self) -> None:
    """Compiles every bucket, so that nothing is compiled while actors wait."""
    for size in self._buckets:
      staging = _Staging(size, self._spec, self._num_slots)
      jax.block_until_ready(self._dispatch_batch(staging, 0))

  @property
  def compiled_shapes(self) -> int:
    """How many programs have been compiled; constant once warm."""
    return self._jit_answer._cache_size()  # type: ignore[attr-defined]

  def start(self) -> None:
    """Begins to serve."""
    for thread in self._threads:
      thread.start()

  def close(self) -> None:
    """Stops serving; waiting requests end with `batching.Closed`."""
    self.queue.close()
    for thread in self._threads:
      if thread.ident is not None:
        thread.join()

  def _serve(self) -> None:
    staging = {size: _Staging(size, self._spec, self._num_slots) for size in self._buckets}
    while True:
      try:
        requests = self.queue.take()
      except batching.Closed:
        return
      started = time.monotonic()
      try:
        rows = sum(r.rows for r in requests)
        size = next(s for s in self._buckets if s >= rows)
        staging[size].fill(requests)
        version, action, extras, core_state = self._dispatch_batch(staging[size], rows)
        action, extras = jax.device_get((action, extras))
        start = 0
        for request in requests:
          rows_of = slice(start, start + request.rows)
          request.resolve(
            (
              version,
              action[rows_of],
              {name: value[rows_of] for name, value in extras.items()},
              CoreStateRows(core_state, rows_of.start, rows_of.stop),
            )
          )
          start = rows_of.stop
      except BaseException as error:
        logging.exception('inference failed')
        for request in requests:
          request.resolve(error=error)
      finally:
        self.queue.done(requests)
        self.busy_seconds += time.monotonic() - started

  def _dispatch_batch(self, staging: _Staging, rows: int) -> tuple[int, Any, Any, Any]:
    with self._dispatch:
      assert self._params is not None, 'set_params comes before any request'
      version, params = self._params
      self._core_state, self._decisions, action, extras, before = self._jit_answer(
        params,
        self._core_state,
        self._decisions,
        self._initial_row,
        self._exploration,
        self._key,
        staging.slots,
        staging.wipe,
        staging.timestep,
      )
      self.batches += bool(rows)
      self.rows += rows
      self.capacity += len(staging.slots) if rows else 0
    return version, action, extras, before


def _make_answer(agent: Agent) -> Callable[..., Any]:
  """Returns the function that runs on an actor device: gather slots, act, scatter slots."""

  def answer(
    params: Nest,
    core_state: Nest,
    decisions: jax.Array,
    initial_row: Nest,
    exploration: jax.Array,
    key: jax.Array,
    slots: jax.Array,
    wipe: jax.Array,
    timestep: Timestep,
  ) -> tuple[Nest, jax.Array, Any, dict[str, Any], Nest]:
    # Padding rows have slot == number of slots: reads are clipped and writes are dropped.
    def gather(table: jax.Array) -> jax.Array:
      return jnp.take(table, slots, axis=0, mode='clip')

    def scatter(table: jax.Array, rows: jax.Array) -> jax.Array:
      return table.at[slots].set(rows, mode='drop', unique_indices=False)

    def wiped(row: jax.Array, initial: jax.Array) -> jax.Array:
      return jnp.where(wipe.reshape((-1,) + (1,) * (row.ndim - 1)), initial, row)

    before = jax.tree.map(wiped, jax.tree.map(gather, core_state), initial_row)
    asked = gather(decisions)
    keys = jax.vmap(lambda slot, count: jax.random.fold_in(jax.random.fold_in(key, slot), count))(
      slots, asked
    )
    output = agent.act(params, before, timestep, gather(exploration), keys)
    core_state = jax.tree.map(scatter, core_state, output.core_state)
    return core_state, scatter(decisions, asked + 1), output.action, output.extras, before

  return answer


class _Staging:
  """The preallocated input arrays of one batch shape."""

  def __init__(self, size: int, spec: specs.EnvironmentSpec, num_slots: int):
    self._num_slots = num_slots
    self.slots = np.full(size, num_slots, np.int32)
    self.wipe = np.zeros(size, bool)
    self.timestep = Timestep(
      step_type=np.zeros(size, np.uint8),
      reward=np.zeros(size, np.float32),
      discount=np.ones(size, np.float32),
      observation=np.zeros((size, *spec.observations.shape), spec.observations.dtype),
    )

  def fill(self, requests: Sequence[batching.Request]) -> None:
    start = 0
    for request in requests:
      stop = start + request.rows
      self.slots[start:stop] = np.arange(request.first_slot, request.first_slot + request.rows)
      self.wipe[start:stop] = request.wipe
      for stored, value in zip(self.timestep, request.timestep, strict=True):
        stored[start:stop] = value
      start = stop
    self.slots[start:] = self._num_slots


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
    batch_size: int,
    timeout: float,
    seed: int,
  ):
    """Initialises a server; `set_params` and `warm_up` come before the first request.

    Args:
      agent: the algorithm.
      streams: who will ask.
      devices: the actor devices.
      environment_spec: of one environment.
      emit: takes finished unrolls, fields `[N, L, ...]`, and a function to call once they are
        copied; must not block.
      batch_size: environments in an inference batch at most.
      timeout: seconds that a request may wait for a fuller batch.
      seed: of the action sampling.
    """
    self._spec = environment_spec
    self._emit = emit
    self._streams: dict[tuple[str, int], tuple[Stream, int, int]] = {}
    self._ready = threading.Event()
    self._finished = threading.Event()
    self._closed = threading.Event()
    self._statistics = threading.Lock()
    self._totals = {'actor_steps': 0, 'rows_dropped': 0, 'restarts': 0}
    self._returns: list[float] = []
    self._lengths: list[int] = []
    self._measured = (0, 0, 0, 0.0, 0.0)

    num_training = sum(s.num_envs for s in streams if s.training)
    exploration = agent.exploration(num_training)
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
    sizes = [s.num_envs for s in streams]
    buckets = batching.bucket_sizes(min(sizes), max(batch_size, *sizes))
    self._devices = [
      DeviceInference(
        agent,
        device,
        np.concatenate(on_device[i]) if on_device[i] else np.zeros(1, np.float32),
        environment_spec,
        buckets,
        timeout,
        functools.partial(self._live_streams, i),
        seed,
      )
      for i, device in enumerate(devices)
    ]

  def set_params(self, version: int, params: Nest) -> None:
    """Makes parameters act on every actor device."""
    for device in self._devices:
      device.set_params(version, params)

  def warm_up(self) -> None:
    """Compiles everything and begins to answer."""
    for device in self._devices:
      device.warm_up()
      device.start()
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
    """Takes one timestep of one stream and returns its actions. An RPC.

    Idempotent: a request that is sent again, with the same `sequence`, gets the same answer and
    changes nothing. Blocks until the server is warm, and while replay takes no more unrolls.

    Args:
      actor_id: as in the stream's spec.
      run_id: drawn afresh at each start of the actor process. When it changes, the actor's slots
        are wiped: core state, half-built unroll, running returns.
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
    """
    if (actor_id, group) not in self._streams:
      raise ValueError(f'no environments were declared for {actor_id!r}, group {group}.')
    stream, device_index, first_slot = self._streams[actor_id, group]
    timestep = Timestep(step_type, reward, discount, observation)
    self._check(stream.spec, timestep)
    self._ready.wait()
    with stream.lock:
      if (
        not self._admit(stream, run_id)
        or self._closed.is_set()
        or (stream.spec.training and self._finished.is_set())
      ):
        return None
      if sequence == stream.sequence:
        return stream.reply
      request = batching.Request(timestep, first_slot, wipe=stream.fresh)
      self._devices[device_index].queue.put(request)
      try:
        version, action, extras, core_state = request.wait()
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

  def finish_training(self) -> None:
    """Tells the actors to stop, each with its next request. Evaluators go on being served."""
    self._finished.set()

  def close(self) -> None:
    """Stops serving; every request from now on is answered None."""
    self._closed.set()
    self._ready.set()
    for device in self._devices:
      device.close()

  @property
  def actor_steps(self) -> int:
    """Agent decisions that an environment executed, evaluation not counted."""
    return self._totals['actor_steps']

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns totals since the start, and rates and means over the last `seconds`."""
    with self._statistics:
      totals = {k: float(v) for k, v in self._totals.items()}
      returns, self._returns = self._returns, []
      lengths, self._lengths = self._lengths, []
    batches = sum(d.batches for d in self._devices)
    rows = sum(d.rows for d in self._devices)
    capacity = sum(d.capacity for d in self._devices)
    busy = sum(d.busy_seconds for d in self._devices)
    now = (batches, rows, capacity, busy, totals['actor_steps'])
    d_batches, d_rows, d_capacity, d_busy, d_steps = (
      a - b for a, b in zip(now, self._measured, strict=True)
    )
    self._measured = now
    return totals | {
      'actor_steps_per_second': d_steps / seconds,
      'inference_batches_per_second': d_batches / seconds,
      'inference_batch_rows': d_rows / d_batches if d_batches else float('nan'),
      'inference_batch_fill': d_rows / d_capacity if d_capacity else float('nan'),
      'inference_latency_ms': 1e3 * d_busy / d_batches if d_batches else float('nan'),
      'exploration_min': self._exploration[0],
      'exploration_max': self._exploration[1],
      'episodes': float(len(returns)),
      'episode_return': float(np.mean(returns)) if returns else float('nan'),
      'episode_length': float(np.mean(lengths)) if lengths else float('nan'),
    }

  def _stopping(self) -> bool:
    return self._closed.is_set() or self._finished.is_set()

  def _live_streams(self, device: int) -> int:
    """How many streams may be asking a device. An evaluator that pauses is not waited for."""
    finished = self._finished.is_set()
    return sum(
      d == device and stream.connected and stream.spec.training is not finished
      for stream, d, _ in self._streams.values()
    )

  def _check(self, spec: StreamSpec, timestep: Timestep) -> None:
    n = spec.num_envs
    wanted = {
      'step_type': ((n,), np.uint8),
      'reward': ((n,), np.float32),
      'discount': ((n,), np.float32),
      'observation': ((n, *self._spec.observations.shape), self._spec.observations.dtype),
    }
    for name, value in timestep._asdict().items():
      shape, dtype = wanted[name]
      if value.shape != shape or value.dtype != dtype:
        raise ValueError(
          f'{spec.actor_id} sent {name} as {value.dtype}{list(value.shape)}, but its environment was '
          f'declared with {np.dtype(dtype)}{list(shape)}.'
        )
    if not (np.isfinite(timestep.reward).all() and np.isfinite(timestep.discount).all()):
      raise ValueError(
        f'an environment of {spec.actor_id} returned a reward or discount that is NaN.'
      )

  def _admit(self, stream: Stream, run_id: int) -> bool:
    """Notes which life of the actor asks; False if a newer one has replaced it."""
    if run_id == stream.run_id:
      return True
    restart = stream.connected
    if not stream.admit(run_id):
      return False
    dropped = stream.assembler.wipe() if stream.assembler else 0
    with self._statistics:
      self._totals['restarts'] += restart
      self._totals['rows_dropped'] += dropped
    return True

  def _count(self, stream: Stream, timestep: Timestep) -> None:
    if not stream.spec.training:
      return
    returns, lengths = stream.episodes.observe(timestep)
    steps = int(np.count_nonzero(timestep.step_type != LAST))
    with self._statistics:
      self._totals['actor_steps'] += steps
      self._returns.extend(returns.tolist())
      self._lengths.extend(lengths.tolist())
