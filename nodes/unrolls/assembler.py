"""Assembles the rows of an environment group into unrolls."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from acme import specs

from agents import shapes
from agents.agent import ActOutput, Agent
from agents.types import Array, Nest, Timestep, Unroll
from environments import nests
from nodes.unrolls.table_names import RELABELLED, UNROLLS


def unroll_spec(
  agent: Agent,
  environment_spec: specs.EnvironmentSpec,
  table: str = UNROLLS,
  acted: ActOutput | None = None,
) -> Unroll:
  """Returns the structure of the unrolls in a table: `jax.ShapeDtypeStruct`s without a batch axis.

  Those in `RELABELLED` have the extras of `agent.relabel`, those in other tables the extras of
  `agent.act`.

  Args:
    agent: the agent.
    environment_spec: of one environment.
    table: of replay.
    acted: the shapes of what `agent.act` returns, for a batch of any size; None to trace it.
  """
  inputs = shapes.act_inputs(agent, environment_spec.observations, 1)
  output = acted or shapes.act_output(agent, environment_spec.observations, 1)

  def with_rows(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((agent.unroll_rows, *x.shape[1:]), x.dtype)

  def without_batch(nest: Nest) -> Nest:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), nest)

  unroll = Unroll(
    timestep=jax.tree.map(with_rows, inputs.timestep),
    action=with_rows(output.action),
    extras={name: with_rows(x) for name, x in output.extras.items()},
    policy_version=jax.ShapeDtypeStruct((agent.unroll_rows,), np.int32),
    core_state=without_batch(inputs.core_state),
    environment_id=jax.ShapeDtypeStruct((), np.int32),
  )
  if table != RELABELLED:
    return unroll
  batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), unroll)
  extras = jax.eval_shape(agent.relabel, shapes.params(agent), batch, inputs.keys)
  return unroll._replace(extras=without_batch(extras))


@dataclasses.dataclass(frozen=True)
class CoreStateRows:
  """Rows of a core state batch that may still be in transfer from the device."""

  batch: Nest
  start: int
  stop: int

  def fetch(self) -> Nest:
    """Returns the rows as NumPy arrays; waits for the device if necessary."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[self.start : self.stop], self.batch)


class UnrollAssembler:
  """Assembles the rows of one environment group into unrolls, in preallocated arrays.

  Unrolls of `rows` rows start every `period` rows, so successive unrolls share `rows - period` rows.
  All environments of a group complete their unrolls together, in one call.
  """

  def __init__(
    self,
    num_envs: int,
    rows: int,
    period: int,
    first_environment_id: int = 0,
    num_buffers: int = 2,
  ):
    """Initialises an assembler.

    Args:
      num_envs: environments N in the group.
      rows: rows L of an unroll.
      period: rows between the starts of successive unrolls, 1 <= period <= rows.
      first_environment_id: the id of the group's first environment.
      num_buffers: maximum number of unrolls: the one being filled and those not yet released.
    """
    if not 1 <= period <= rows:
      raise ValueError(f'unrolls of {rows} rows cannot start every {period} rows.')
    self._num_envs = num_envs
    self._rows = rows
    self._period = period
    self._environment_id = np.arange(
      first_environment_id, first_environment_id + num_envs, dtype=np.int32
    )
    self._free: list[Unroll | None] = [None] * (num_buffers - 1)  # None: not allocated yet.
    self._buffer: Unroll | None = None
    self._timestep: Sequence[np.ndarray] = ()  # Of the buffer.
    self._filled = 0
    self._shared = 0  # Filled rows that the previous unroll also has.
    self._row_index = 0
    self._starts: collections.deque[CoreStateRows] = collections.deque()

  @property
  def full(self) -> bool:
    """Whether a finished unroll waits for a free buffer; call `take` before the next `append`."""
    return self._filled == self._rows

  def reset(self) -> int:
    """Drops the partial unroll; returns how many rows, over all environments, are lost."""
    lost = (self._filled - self._shared) * self._num_envs
    self._filled = self._shared = 0
    self._row_index = 0
    self._starts.clear()
    return lost

  def append(
    self,
    timestep: Timestep,
    action: Array,
    extras: dict[str, Array],
    policy_version: int,
    core_state: CoreStateRows,
  ) -> Unroll | None:
    """Adds one row for every environment.

    Args:
      timestep: fields are `[N, ...]` per leaf.
      action: `[N, ...]`.
      extras: `[N, ...]` each.
      policy_version: of the parameters that chose `action`.
      core_state: the state before this row was consumed; stored only where an unroll starts.

    Returns:
      The result of `take` if this row completes an unroll, else None.
    """
    buffer = self._buffer
    if buffer is None:
      buffer = self._fill(_allocate(self._num_envs, self._rows, timestep, action, extras))
    if self._row_index % self._period == 0:
      self._starts.append(core_state)
    t = self._filled
    for stored, value in zip(self._timestep, nests.arrays_of(timestep), strict=True):
      stored[:, t] = value
    buffer.action[:, t] = action
    for name, value in extras.items():
      buffer.extras[name][:, t] = value
    buffer.policy_version[:, t] = policy_version
    self._filled += 1
    self._row_index += 1
    if self._filled < self._rows:
      return None
    return self.take()

  def release(self, unroll: Unroll) -> None:
    """Returns the arrays of a finished unroll for reuse. Any thread may call it."""
    self._free.append(unroll._replace(core_state=()))

  def take(self) -> Unroll | None:
    """Returns the N finished unrolls, fields `[N, L, ...]`; None while all other buffers are in use.

    Call `release` with them once replay has accepted them. Returning None is the back-pressure by which
    a full replay queue slows the actors down.
    """
    finished = self._buffer
    if not self._free:
      return None
    assert finished is not None and self.full
    free = self._free.pop()
    buffer = self._fill(free or jax.tree.map(np.empty_like, finished))
    self._filled = self._shared = self._rows - self._period
    for source, target in zip(_row_arrays(finished), _row_arrays(buffer), strict=True):
      target[:, : self._shared] = source[:, self._period :]
    return finished._replace(
      core_state=self._starts.popleft().fetch(), environment_id=self._environment_id
    )

  def _fill(self, buffer: Unroll) -> Unroll:
    """Makes these arrays the ones that rows are added to, and returns them."""
    self._buffer, self._timestep = buffer, nests.arrays_of(buffer.timestep)
    return buffer


def _allocate(
  num_envs: int, rows: int, timestep: Timestep, action: Array, extras: dict[str, Array]
) -> Unroll:
  def rows_like(value: Any) -> np.ndarray:
    value = np.asarray(value)
    return np.empty((num_envs, rows) + value.shape[1:], value.dtype)

  return Unroll(
    timestep=jax.tree.map(rows_like, timestep),
    action=rows_like(action),
    extras={name: rows_like(value) for name, value in extras.items()},
    policy_version=np.empty((num_envs, rows), np.int32),
    core_state=(),
    environment_id=np.empty((num_envs,), np.int32),
  )


def _row_arrays(unroll: Unroll) -> list[np.ndarray]:
  """Returns the arrays with a row axis, in a fixed order."""
  arrays = nests.arrays_of(unroll.timestep)
  return [*arrays, unroll.action, *unroll.extras.values(), unroll.policy_version]
