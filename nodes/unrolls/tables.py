"""The Reverb tables that hold unrolls, as data, from which the replay server makes them."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable

from nodes.unrolls.table_names import ORIGINALS, RELABELLED, UNROLLS

FIFO, LIFO, UNIFORM, PRIORITIZED = 'fifo', 'lifo', 'uniform', 'prioritized'
_SELECTORS = (FIFO, LIFO, UNIFORM, PRIORITIZED)


@dataclasses.dataclass(frozen=True)
class RateLimiter:
  """When a table holds back writers and readers, as in Reverb.

  `inserts * samples_per_insert - samples` stays between two bounds: a call that would cross one waits.

  Attributes:
    samples_per_insert: above 0.
    min_size_to_sample: number of items before the first is sampled, at least 1.
    min_diff: the bound that holds back readers.
    max_diff: the bound that holds back writers.
  """

  samples_per_insert: float = 1.0
  min_size_to_sample: int = 1
  min_diff: float = -sys.float_info.max
  max_diff: float = sys.float_info.max


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of a replay server.

  Attributes:
    name: by which writers and readers know it.
    sampler: which item is sampled, one of 'fifo', 'lifo', 'uniform' and 'prioritized'.
    max_size: maximum number of items.
    rate_limiter: when it holds back writers and readers.
    remover: which item is dropped when it is full, as `sampler`.
    max_times_sampled: after which an item is dropped; 0 for no maximum.
    priority_exponent: of 'prioritized': P(i) is proportional to priority(i) to this power.
  """

  name: str
  sampler: str
  max_size: int
  rate_limiter: RateLimiter
  remover: str = FIFO
  max_times_sampled: int = 0
  priority_exponent: float = 1.0

  def __post_init__(self) -> None:
    """Raises ValueError for what Reverb would not take, or what would block all calls; one sentence."""
    limiter = self.rate_limiter
    if not self.name:
      raise ValueError('a table needs a name.')
    for selector in (self.sampler, self.remover):
      if selector not in _SELECTORS:
        raise ValueError(
          f'table {self.name}: {selector!r} is no selector; there are {", ".join(_SELECTORS)}.'
        )
    if self.max_size < 1:
      raise ValueError(f'table {self.name}: max_size={self.max_size} must be at least 1.')
    if not 1 <= limiter.min_size_to_sample <= self.max_size:
      raise ValueError(
        f'table {self.name}: min_size_to_sample={limiter.min_size_to_sample} must be at least 1, and at '
        f'most max_size={self.max_size}.'
      )
    if not 0 < limiter.samples_per_insert < math.inf:
      raise ValueError(
        f'table {self.name}: samples_per_insert={limiter.samples_per_insert} must be above 0.'
      )
    if not limiter.min_diff < limiter.max_diff:
      raise ValueError(
        f'table {self.name}: min_diff={limiter.min_diff} must be below max_diff={limiter.max_diff}.'
      )


def queue_table(max_size: int, name: str = UNROLLS) -> list[Table]:
  """Returns a FIFO table, which delivers each item once and blocks writers while it is full.

  Args:
    max_size: maximum number of items in the queue.
    name: of the table.
  """
  limiter = RateLimiter(min_diff=0.0, max_diff=float(max_size))
  return [Table(name, FIFO, max_size, limiter, max_times_sampled=1)]


def prioritized_table(
  max_size: int,
  min_size: int,
  samples_per_insert: float,
  error_buffer: float,
  priority_exponent: float,
) -> list[Table]:
  """Returns the table `UNROLLS`, which samples by priority and drops the oldest unroll when it is full.

  Args:
    max_size: maximum number of unrolls.
    min_size: number of unrolls before the first is sampled.
    samples_per_insert: average number of times an unroll is sampled, over the whole run.
    error_buffer: samples by which the ratio may deviate before the rate limiter blocks one side.
    priority_exponent: P(i) is proportional to priority(i) to this power; the table applies it.
  """
  limiter = _ratio(samples_per_insert, min_size, error_buffer)
  return [Table(UNROLLS, PRIORITIZED, max_size, limiter, priority_exponent=priority_exponent)]


def uniform_table(
  max_size: int,
  min_size: int,
  samples_per_insert: float = 0.0,
  error_buffer: float = 0.0,
  name: str = ORIGINALS,
) -> list[Table]:
  """Returns a table that samples uniformly and drops the oldest unroll when it is full.

  Args:
    max_size: maximum number of unrolls.
    min_size: number of unrolls before the first is sampled.
    samples_per_insert, error_buffer: as in `prioritized_table`; without a ratio the table blocks no
      writers.
    name: of the table.
  """
  limiter = RateLimiter(min_size_to_sample=min_size)
  if samples_per_insert:
    limiter = _ratio(samples_per_insert, min_size, error_buffer)
  return [Table(name, UNIFORM, max_size, limiter)]


def relabelled_table(
  max_size: int, min_size: int, priority_exponent: float, each_once: bool = False
) -> list[Table]:
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
  limiter = RateLimiter(min_size_to_sample=min_size, max_diff=float(max_size))
  if each_once:
    limiter = dataclasses.replace(limiter, min_diff=0.0)
  return [Table(RELABELLED, PRIORITIZED, max_size, limiter, priority_exponent=priority_exponent)]


def all_tables(*tables: Iterable[Table]) -> list[Table]:
  """Returns the tables of one server that holds several.

  Raises:
    ValueError: if two have the same name.
  """
  together = [table for some in tables for table in some]
  names = [table.name for table in together]
  for name in names:
    if names.count(name) > 1:
      raise ValueError(f'two tables of a replay server have the name {name}.')
  return together


def _ratio(samples_per_insert: float, min_size: int, error_buffer: float) -> RateLimiter:
  """Returns the limiter that keeps to a ratio once there are `min_size` items."""
  if error_buffer < max(1.0, samples_per_insert):
    raise ValueError(
      f'error_buffer={error_buffer} must be at least 1, and at least '
      f'samples_per_insert={samples_per_insert}.'
    )
  middle = samples_per_insert * min_size
  return RateLimiter(samples_per_insert, min_size, middle - error_buffer, middle + error_buffer)
