"""The Reverb tables that hold unrolls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import reverb

TABLE = 'unrolls'


def queue_table(max_size: int) -> list[reverb.Table]:
  """Returns a FIFO table that delivers each unroll once and blocks writers while it is full.

  Args:
    max_size: unrolls that may wait.
  """
  import reverb  # Only in the process of the table: writers need no more than its name before.

  return [reverb.Table.queue(TABLE, max_size)]


def prioritized_table(
  max_size: int,
  min_size: int,
  samples_per_insert: float,
  error_buffer: float,
  priority_exponent: float,
) -> list[reverb.Table]:
  """Returns a table that samples by priority and drops the oldest unroll when it is full.

  Args:
    max_size: unrolls held at most.
    min_size: unrolls held before the first is sampled.
    samples_per_insert: how often an unroll is sampled on average, over the whole run.
    error_buffer: samples by which the ratio may be ahead or behind before one side is blocked.
    priority_exponent: P(i) is proportional to priority(i) to this power. The table applies it.
  """
  import reverb

  return [
    reverb.Table(
      TABLE,
      sampler=reverb.selectors.Prioritized(priority_exponent),
      remover=reverb.selectors.Fifo(),
      max_size=max_size,
      rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
        samples_per_insert, min_size, float(error_buffer)
      ),
    )
  ]
