"""Limits of one call of the compiled loop. Imports no JAX: launching a program reads only this."""

from __future__ import annotations


def check_rows(num_envs: int, unroll_length: int, updates_per_call: int) -> None:
  """Checks that the rows of one call fit its counters, which are int32.

  Raises:
    ValueError: one sentence that names the flags and the fix.
  """
  rows = num_envs * unroll_length * updates_per_call
  if rows >= 2**31:
    raise ValueError(
      f'--updates_per_call={updates_per_call} unrolls of --unroll_length={unroll_length} in each of '
      f'--num_envs={num_envs} are {rows} rows in one call, above the limit of 2147483647; make one of '
      'the three smaller.'
    )
