"""Inference on one actor device: gather the slots' core states, act, scatter them back."""

from __future__ import annotations

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
from agents.networks import core_state as core_states
from agents.types import Nest, Timestep
from nodes import batching
from nodes.streams import CoreStateRows


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
    """Initialises the slots; `compile` and `start` come before the first request.

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

  def set_params(self, version: int, params: Nest) -> None:
    """Makes parameters act, from the next batch on. They are copied from device to device."""
    self._params = version, jax.device_put(params, self._device)

  def compile(self) -> None:
    """Compiles every bucket; `set_params` comes first."""
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
      return table.at[slots].set(rows, mode='drop')

    before = core_states.reset(jax.tree.map(gather, core_state), initial_row, wipe)
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
