"""Inference on one actor device: gathers the slots' core states, acts, and scatters them back."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from acme import specs

from agents.agent import Agent
from agents.networks import core_state as core_states
from agents.seeding import Seed
from agents.types import Nest, Timestep
from environments import nests
from nodes.unrolls.assembler import CoreStateRows


class InferenceInput(Protocol):
  """The timestep of one group of N environments; a `nodes.inference.request_decoder.Request` is one."""

  @property
  def timestep(self) -> Timestep:
    """The timestep; fields are `[N, ...]`."""

  @property
  def rows(self) -> int:
    """The number of environments N."""

  @property
  def first_slot(self) -> int:
    """The first slot; the environments use `first_slot .. first_slot + N` of the device."""

  @property
  def needs_reset(self) -> bool:
    """Whether to reset the slots' core states before acting."""


class InferenceOutput(NamedTuple):
  """The result of inference for one group of environments.

  Attributes:
    policy_version: of the parameters that chose the actions.
    action: `[N, ...]`.
    extras: `[N, ...]` each.
    core_state: the state before the timestep was consumed.
  """

  policy_version: int
  action: np.ndarray
  extras: dict[str, np.ndarray]
  core_state: CoreStateRows


class DeviceInference:
  """Serves the environment groups of one actor device.

  Several threads may serve batches concurrently: while the device runs one, the host assembles others
  and replies to them. An environment's action does not depend on the rest of its batch. Its slot
  holds its core state and its random state (the seed, its id and its number of decisions).

  Attributes:
    device: the actor device.
    batches: number of batches served.
    rows: environments in those batches.
    capacity: environments that those batches had room for.
    busy_seconds: time spent in `serve`, summed over threads.
  """

  def __init__(
    self,
    agent: Agent,
    device: jax.Device,
    exploration: np.ndarray,
    environment_ids: np.ndarray,
    environment_spec: specs.EnvironmentSpec,
    buckets: Sequence[int],
    seed: Seed,
  ):
    """Initialises the slots; call `compile` before the first request.

    Args:
      agent: the algorithm.
      device: the actor device.
      exploration: float32 `[slots]`, one per environment of this device.
      environment_ids: int32 `[slots]`; unique among environments that share a seed.
      environment_spec: of one environment.
      buckets: batch sizes to compile for, ascending; the last is the largest batch.
      seed: of action sampling.
    """
    self.device = device
    self._spec = environment_spec
    self._buckets = list(buckets)
    self._num_slots = len(exploration)
    self._params: tuple[int, Nest] | None = None
    self._dispatch = threading.Lock()
    put = lambda x: jax.device_put(x, device)  # noqa: E731
    self._core_state = put(agent.initial_core_state(self._num_slots))
    self._decisions = put(jnp.zeros(self._num_slots, jnp.uint32))
    self._initial_row = put(agent.initial_core_state(1))
    self._exploration = put(jnp.asarray(exploration, jnp.float32))
    fold_in = functools.partial(jax.random.fold_in, seed.child('actions').key())
    self._keys = put(jax.vmap(fold_in)(jnp.asarray(environment_ids, jnp.int32)))
    self._jit_act = jax.jit(_make_act(agent), donate_argnums=(1, 2))
    self._staging: list[dict[int, _Staging]] = []  # One per concurrent batch.
    self.batches = 0
    self.rows = 0
    self.capacity = 0
    self.busy_seconds = 0.0

  def set_params(self, version: int, params: Nest) -> None:
    """Sets the parameters from the next batch on; copies them from device to device."""
    self._params = version, jax.device_put(params, self.device)

  def compile(self) -> None:
    """Compiles every bucket; call `set_params` first."""
    staging = self._new_staging()
    for arrays in staging.values():
      jax.block_until_ready(self._dispatch_batch(arrays, 0))
    self._staging.append(staging)

  @property
  def compiled_shapes(self) -> int:
    """The number of compiled programs; constant once warm."""
    return self._jit_act._cache_size()  # type: ignore[attr-defined]

  def serve(self, inputs: Sequence[InferenceInput]) -> list[InferenceOutput]:
    """Runs inference on one batch, no larger than the largest bucket."""
    started = time.monotonic()
    try:
      staging = self._staging.pop()
    except IndexError:
      staging = self._new_staging()
    rows = sum(i.rows for i in inputs)
    size = next(s for s in self._buckets if s >= rows)
    staging[size].fill(inputs)
    version, action, extras, core_state = self._dispatch_batch(staging[size], rows)
    if self.device.platform != 'cpu':
      jax.tree.map(lambda x: x.copy_to_host_async(), (action, extras))
    action = np.asarray(action)
    extras = {name: np.asarray(value) for name, value in extras.items()}
    outputs = []
    start = 0
    for each in inputs:
      stop = start + each.rows
      rows_of_extras = {name: value[start:stop] for name, value in extras.items()}
      rows_of_core_state = CoreStateRows(core_state, start, stop)
      outputs.append(
        InferenceOutput(version, action[start:stop], rows_of_extras, rows_of_core_state)
      )
      start = stop
    self._staging.append(staging)
    self.busy_seconds += time.monotonic() - started
    return outputs

  def _new_staging(self) -> dict[int, _Staging]:
    return {size: _Staging(size, self._spec, self._num_slots) for size in self._buckets}

  def _dispatch_batch(self, staging: _Staging, rows: int) -> tuple[int, Any, Any, Any]:
    with self._dispatch:
      assert self._params is not None, 'set_params comes before any request'
      version, params = self._params
      self._core_state, self._decisions, action, extras, before = self._jit_act(
        params,
        self._core_state,
        self._decisions,
        self._initial_row,
        self._exploration,
        self._keys,
        staging.slots,
        staging.reset,
        staging.timestep,
      )
      self.batches += bool(rows)
      self.rows += rows
      self.capacity += len(staging.slots) if rows else 0
    return version, action, extras, before


def _make_act(agent: Agent) -> Callable[..., Any]:
  """Returns the function to run on an actor device: gathers slots, acts, scatters slots."""

  def act(
    params: Nest,
    core_state: Nest,
    decisions: jax.Array,
    initial_row: Nest,
    exploration: jax.Array,
    keys: jax.Array,
    slots: jax.Array,
    reset: jax.Array,
    timestep: Timestep,
  ) -> tuple[Nest, jax.Array, Any, dict[str, Any], Nest]:
    # Padding rows have slot == num_slots, so reads are clipped and writes are dropped.
    def gather(table: jax.Array) -> jax.Array:
      return jnp.take(table, slots, axis=0, mode='clip')

    def scatter(table: jax.Array, rows: jax.Array) -> jax.Array:
      return table.at[slots].set(rows, mode='drop')

    before = core_states.reset(jax.tree.map(gather, core_state), initial_row, reset)
    asked = gather(decisions)
    drawn = jax.vmap(jax.random.fold_in)(gather(keys), asked)
    output = agent.act(params, before, timestep, gather(exploration), drawn)
    core_state = jax.tree.map(scatter, core_state, output.core_state)
    return core_state, scatter(decisions, asked + 1), output.action, output.extras, before

  return act


class _Staging:
  """Preallocated input arrays of one batch size."""

  def __init__(self, size: int, spec: specs.EnvironmentSpec, num_slots: int):
    self._num_slots = num_slots
    self.slots = np.full(size, num_slots, np.int32)
    self.reset = np.zeros(size, bool)
    self.timestep = Timestep(
      step_type=np.zeros(size, np.uint8),
      reward=np.zeros(size, np.float32),
      discount=np.ones(size, np.float32),
      observation=jax.tree.map(
        lambda spec: np.zeros((size, *spec.shape), spec.dtype), spec.observations
      ),
    )
    self._arrays = nests.arrays_of(self.timestep)

  def fill(self, inputs: Sequence[InferenceInput]) -> None:
    start = 0
    for each in inputs:
      stop = start + each.rows
      self.slots[start:stop] = np.arange(each.first_slot, each.first_slot + each.rows)
      self.reset[start:stop] = each.needs_reset
      for stored, value in zip(self._arrays, nests.arrays_of(each.timestep), strict=True):
        stored[start:stop] = value
      start = stop
    self.slots[start:] = self._num_slots
