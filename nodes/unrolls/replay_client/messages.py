"""The messages of Reverb's service, of `reverb_service.proto` and `schema.proto`, written and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nodes.unrolls.replay_client import wire

Buffer = Any

SERVICE = '/deepmind.reverb.ReverbService/'

_UINT8 = 4  # TensorFlow's number of the data type.


class CallStats(NamedTuple):
  """Calls that a rate limiter has let through since the start of a table."""

  completed: int = 0


class RateLimiterInfo(NamedTuple):
  """A rate limiter; the fields are Reverb's."""

  samples_per_insert: float = 0.0
  min_diff: float = 0.0
  max_diff: float = 0.0
  min_size_to_sample: int = 0
  insert_stats: CallStats = CallStats()
  sample_stats: CallStats = CallStats()


class TableInfo(NamedTuple):
  """A table; the fields are Reverb's."""

  name: str = ''
  max_size: int = 0
  max_times_sampled: int = 0
  current_size: int = 0
  rate_limiter_info: RateLimiterInfo = RateLimiterInfo()
  num_episodes: int = 0
  num_deleted_episodes: int = 0
  num_unique_samples: int = 0


def table_infos(data: memoryview) -> dict[str, TableInfo]:
  """Returns the tables of a ServerInfoResponse by name."""
  tables = [
    _table_info(data, *value) for number, value in wire.fields(data, 0, len(data)) if number == 2
  ]
  return {table.name: table for table in tables}


_TABLE_INTEGERS = {
  3: 'max_size',
  4: 'max_times_sampled',
  7: 'current_size',
  9: 'num_episodes',
  10: 'num_deleted_episodes',
  11: 'num_unique_samples',
}


def _table_info(data: memoryview, begin: int, end: int) -> TableInfo:
  found: dict[str, Any] = {}
  for number, value in wire.fields(data, begin, end):
    if number == 8:
      found['name'] = str(data[value[0] : value[1]], 'utf-8')
    elif number == 5:
      found['rate_limiter_info'] = _rate_limiter_info(data, *value)
    elif number in _TABLE_INTEGERS:
      found[_TABLE_INTEGERS[number]] = value
  return TableInfo(**found)


def _rate_limiter_info(data: memoryview, begin: int, end: int) -> RateLimiterInfo:
  found: dict[str, Any] = {}
  for number, value in wire.fields(data, begin, end):
    if number in (1, 2, 3):
      found[RateLimiterInfo._fields[number - 1]] = wire.to_double(value)
    elif number == 4:
      found['min_size_to_sample'] = value
    elif number in (5, 6):
      stats = dict(wire.fields(data, *value))
      found['insert_stats' if number == 5 else 'sample_stats'] = CallStats(stats.get(2, 0))
  return RateLimiterInfo(**found)


def mutation(table: str, updates: Mapping[int, float], deletes: Iterable[int]) -> bytes:
  """Returns a MutatePrioritiesRequest."""
  parts = [wire.message(1, table.encode())]
  for key, priority in updates.items():
    parts.append(wire.message(2, wire.integer(1, key) + wire.double(2, priority)))
  parts += [wire.integer(3, key) for key in deletes]
  return b''.join(parts)


def checkpoint_path(data: memoryview) -> str:
  """Returns the path of a CheckpointResponse."""
  (_, (begin, end)) = wire.fields(data, 0, len(data))[0]
  return str(data[begin:end], 'utf-8')


def sample_request(table: str, count: int) -> bytes:
  """Returns a SampleStreamRequest, whose samples wait for the rate limiter without a limit."""
  return wire.message(1, table.encode()) + wire.integer(2, count)


def chunk(key: int, episode: int, size: int, content: list[Buffer]) -> list[Buffer]:
  """Returns the field of a chunk in an InsertStreamRequest, in parts.

  Args:
    key: of the chunk.
    episode: its episode, which Reverb counts.
    size: of its only row, in bytes.
    content: the row as snappy data, in parts.
  """
  size_of_content = sum(map(len, content))
  # A tensor uint8 [1, size].
  shape = wire.message(2, b'\x08\x01') + wire.message(2, wire.integer(1, size))
  head = wire.integer(1, _UINT8) + wire.message(2, shape) + wire.delimited(4, size_of_content)
  tensor = wire.delimited(1, len(head) + size_of_content) + head
  before = (
    wire.integer(1, key)
    + wire.message(2, wire.integer(1, episode))
    + wire.delimited(5, len(tensor) + size_of_content)
    + tensor
  )
  after = b'\x30\x01' + wire.integer(7, size)  # Number of tensors, and their uncompressed size.
  whole = wire.delimited(1, len(before) + size_of_content + len(after))
  return [whole + before, *content, after]


def item(key: int, table: str, priority: float, chunk_key: int) -> bytes:
  """Returns the field of an item in an InsertStreamRequest: one column, the only row of a chunk."""
  chunk_slice = wire.integer(1, chunk_key) + b'\x18\x01'  # Of length 1.
  column = wire.message(1, chunk_slice) + b'\x10\x01'  # Without the axis of rows.
  trajectory = wire.message(8, wire.message(1, column))
  head = wire.integer(1, key) + wire.message(2, table.encode()) + wire.double(5, priority)
  return wire.message(2, head + trajectory)


def confirmed_keys(data: memoryview) -> list[int]:
  """Returns the keys of the items of an InsertStreamResponse."""
  keys = []
  for number, value in wire.fields(data, 0, len(data)):
    if number == 1:
      keys += wire.integers(data, value)
  return keys
