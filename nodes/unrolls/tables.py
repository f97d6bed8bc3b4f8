"""The Reverb tables that hold unrolls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import reverb

TABLE = 'unrolls'


def queue_table(max_size: int) -> list[reverb.Table]:
  """Returns a FIFO table that delivers each item once and blocks writers while it is full.

  Args:
    max_size: maximum number of items in the queue.
  """
  import reverb  # Imported only in the table's process; writers need only `TABLE` from here.

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
    max_size: maximum number of unrolls.
    min_size: number of unrolls before the first is sampled.
    samples_per_insert: average number of times an unroll is sampled, over the whole run.
    error_buffer: samples by which the ratio may deviate before the rate limiter blocks one side.
    priority_exponent: P(i) is proportional to priority(i) to this power; the table applies it.
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
