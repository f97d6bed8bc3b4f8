"""Limits of the compiled loop. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses


def check_rows(
  num_envs: int, unroll_length: int, updates_per_call: int, updates_per_unroll: int = 1
) -> None:
  """Checks that the rows of one call fit its counters, which are int32.

  Raises:
    ValueError: one sentence that names the flags and the fix.
  """
  unrolls = updates_per_call // updates_per_unroll
  rows = num_envs * unroll_length * unrolls
  if rows >= 2**31:
    raise ValueError(
      f'--updates_per_call={updates_per_call}, {unrolls} unrolls of {unroll_length} rows in each of '
      f'--num_envs={num_envs} are {rows} rows in one call, above the limit of 2147483647; make one of '
      'the two smaller.'
    )


@dataclasses.dataclass(frozen=True)
class RingSizes:
  """Sizes of a replay on the devices, and how it is sampled; see `agents.anakin.ring`.

  Attributes:
    num_rings: rings, each of an equal share of the environments.
    slots: unrolls of each environment that a ring holds.
    min_slots: unrolls of each environment in it before learning starts.
    batch_size: unrolls in a learner batch, as many from each ring.
    updates_per_unroll: learner steps after each new unroll of every environment.
    priority_exponent: unrolls are sampled in proportion to priority to this power.
  """

  num_rings: int
  slots: int
  min_slots: int
  batch_size: int
  updates_per_unroll: int
  priority_exponent: float

  def check(self, num_envs: int, num_devices: int, updates_per_call: int) -> None:
    """Checks that rings, environments, batches, devices and calls divide.

    Raises:
      ValueError: one sentence that names the flags and the fix.
    """
    shards = f'--num_replay_shards={self.num_rings}'
    for flag, size in (('num_envs', num_envs), ('batch_size', self.batch_size)):
      if size % self.num_rings:
        raise ValueError(f'--{flag}={size} does not divide over {shards}; make it a multiple.')
    if self.num_rings % num_devices:
      raise ValueError(
        f'{shards} does not divide over {num_devices} devices; make it a multiple, or set '
        '--num_devices.'
      )
    if updates_per_call % self.updates_per_unroll:
      raise ValueError(
        f'--updates_per_call={updates_per_call} is not a multiple of the {self.updates_per_unroll} '
        'learner steps after each unroll, --samples_per_insert * --num_envs / --batch_size; make it one.'
      )
