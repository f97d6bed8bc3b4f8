"""The Reverb tables that hold unrolls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from nodes.unrolls.table_names import ORIGINALS, RELABELLED, UNROLLS
from nodes.unrolls.thin_reverb import reverb


def queue_table(max_size: int) -> list[reverb.Table]:
  """Returns the FIFO table `UNROLLS`, which delivers each item once and blocks writers while it is full.

  Args:
    max_size: maximum number of items in the queue.
  """
  return [reverb.Table.queue(UNROLLS, max_size)]


def prioritized_table(
  max_size: int,
  min_size: int,
  samples_per_insert: float,
  error_buffer: float,
  priority_exponent: float,
) -> list[reverb.Table]:
  """Returns the table `UNROLLS`, which samples by priority and drops the oldest unroll when it is full.

  Args:
    max_size: maximum number of unrolls.
    min_size: number of unrolls before the first is sampled.
    samples_per_insert: average number of times an unroll is sampled, over the whole run.
    error_buffer: samples by which the ratio may deviate before the rate limiter blocks one side.
    priority_exponent: P(i) is proportional to priority(i) to this power; the table applies it.
  """
  limiter = reverb.rate_limiters.SampleToInsertRatio(
    samples_per_insert, min_size, float(error_buffer)
  )
  return [_table(UNROLLS, max_size, reverb.selectors.Prioritized(priority_exponent), limiter)]


def uniform_table(
  max_size: int,
  min_size: int,
  samples_per_insert: float = 0.0,
  error_buffer: float = 0.0,
  name: str = ORIGINALS,
) -> list[reverb.Table]:
  """Returns a table that samples uniformly and drops the oldest unroll when it is full.

  Args:
    max_size: maximum number of unrolls.
    min_size: number of unrolls before the first is sampled.
    samples_per_insert, error_buffer: as in `prioritized_table`; without a ratio the table blocks no
      writers.
    name: of the table.
  """
  if samples_per_insert:
    limiter = reverb.rate_limiters.SampleToInsertRatio(
      samples_per_insert, min_size, float(error_buffer)
    )
  else:
    limiter = reverb.rate_limiters.MinSize(min_size)
  return [_table(name, max_size, reverb.selectors.Uniform(), limiter)]


def relabelled_table(
  max_size: int, min_size: int, priority_exponent: float, each_once: bool = False
) -> list[reverb.Table]:
  """Returns the table `RELABELLED`, which samples by priority and drops the oldest copy when it is full.

  Its rate limiter can always be met. Readers wait for the first `min_size` copies and never again.
  Writers wait only while they are `max_size` copies ahead of the samples. So relabellers fill the table,
  then write one copy for each that is sampled.

  Args:
    max_size: maximum number of copies.
    min_size: number of copies before the first is sampled, at most `max_size`.
    priority_exponent: as in `prioritized_table`.
    each_once: whether a copy is sampled once on average, for readers of this table alone. They then wait
      for a copy for each of their samples.
  """
  limiter = reverb.rate_limiters.RateLimiter(
    samples_per_insert=1.0,
    min_size_to_sample=min_size,
    min_diff=0.0 if each_once else -sys.float_info.max,
    max_diff=float(max_size),
  )
  return [_table(RELABELLED, max_size, reverb.selectors.Prioritized(priority_exponent), limiter)]


def all_tables(makers: Sequence[Callable[[], Sequence[reverb.Table]]]) -> list[reverb.Table]:
  """Returns the tables of one server that holds several."""
  return [table for make in makers for table in make()]


def _table(name: str, max_size: int, sampler: Any, rate_limiter: Any) -> reverb.Table:
  """Returns a table that drops the oldest item when it is full."""
  return reverb.Table(name, sampler, reverb.selectors.Fifo(), max_size, rate_limiter)
