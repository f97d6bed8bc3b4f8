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

  Several batches may be in flight at once: while the device works on one, the host assembles and
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
    seed: int,
    max_in_flight: int = 2,
  ):
    """Initialises the slots; `compile` comes before the first request.

    Args:
      agent: the algorithm.
      device: where to run it.
      exploration: float32 `[slots]`, one for each environment served here.
      environment_spec: of one environment.
      buckets: batch sizes to compile for, ascending; the last is the largest batch.
      timeout: seconds that a request may wait for a fuller batch.
      seed: of the action sampling.
      max_in_flight: batches in flight, at most.
    """
    self._device = device
    self._spec = environment_spec
    self._buckets = list(buckets)
    self._num_slots = len(exploration)
    self._params: tuple[int, Nest] | None = None
    self._dispatch = threading.Lock()
    self.batcher = batching.Batcher(self.serve, self._buckets[-1], timeout, max_in_flight)
    put = lambda x: jax.device_put(x, device)  # noqa: E731
    self._core_state = put(agent.initial_core_state(self._num_slots))
    self._decisions = put(jnp.zeros(self._num_slots, jnp.uint32))
    self._initial_row = put(agent.initial_core_state(1))
    self._exploration = put(jnp.asarray(exploration, jnp.float32))
    self._key = put(jax.random.key(seed))
    self._jit_answer = jax.jit(_make_answer(agent), donate_argnums=(1, 2))
    self._staging = [
      {size: _Staging(size, self._spec, self._num_slots) for size in self._buckets}
      for _ in range(max_in_flight)
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
    for staging in self._staging[0].values():
      jax.block_until_ready(self._dispatch_batch(staging, 0))

  @property
  def compiled_shapes(self) -> int:
    """How many programs have been compiled; constant once warm."""
    return self._jit_answer._cache_size()  # type: ignore[attr-defined]

  def serve(self, requests: Sequence[batching.Request]) -> None:
    """Resolves the requests of one batch; called by `batcher`, from one of several threads."""
    started = time.monotonic()
    staging = self._staging.pop()
    try:
      rows = sum(r.rows for r in requests)
      size = next(s for s in self._buckets if s >= rows)
      staging[size].fill(requests)
      version, action, extras, core_state = self._dispatch_batch(staging[size], rows)
      if self._device.platform != 'cpu':
        jax.tree.map(lambda x: x.copy_to_host_async(), (action, extras))
      action = np.asarray(action)
      extras = {name: np.asarray(value) for name, value in extras.items()}
      start = 0
      for request in requests:
        stop = start + request.rows
        answer = (
          version,
          action[start:stop],
          {name: value[start:stop] for name, value in extras.items()},
          CoreStateRows(core_state, start, stop),
        )
        request.resolve(answer)
        start = stop
    except BaseException as error:
      logging.exception('inference failed')
      for request in requests:
        if not request.answered:
          request.resolve(error=error)
    finally:
      self._staging.append(staging)
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
