"""The messages of Reverb's service, of `reverb_service.proto` and `schema.proto`, written and read."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nodes.unrolls.replay_client import snappy, wire

Buffer = Any

SERVICE = '/deepmind.reverb.ReverbService/'

_UINT8 = 4  # TensorFlow's number of the data type.
_PRIORITY = struct.Struct('<Bd')  # The field of a priority.
_KEY = b'\x08'  # Precedes the key in a chunk, in an item, and in a slice of a chunk.
KEY_BYTES = 9
_KEY_BITS = int.from_bytes(b'\x7f' * KEY_BYTES, 'little')
_KEY_CONTINUES = int.from_bytes(b'\x80' * (KEY_BYTES - 1) + b'\x40', 'little')


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


def mutation(table: str, updates: Mapping[int, float]) -> bytes:
  """Returns a MutatePrioritiesRequest."""
  parts = [wire.message(1, table.encode())]
  for key, priority in updates.items():
    encoded = wire.varint(key)
    size = len(_KEY) + len(encoded) + _PRIORITY.size
    parts += [b'\x12', bytes((size,)), _KEY, encoded, _PRIORITY.pack(0x11, priority)]
  return b''.join(parts)


def sample_request(table: str, count: int) -> bytes:
  """Returns a SampleStreamRequest, whose samples wait for the rate limiter without a limit."""
  return wire.message(1, table.encode()) + wire.integer(2, count)


def new_key() -> bytes:
  """Returns the random key of a chunk or an item, as the wire has it: always `KEY_BYTES` bytes.

  So messages differ in their keys alone, and all else in them is encoded once.
  """
  random = int.from_bytes(os.urandom(KEY_BYTES), 'little')
  return (random & _KEY_BITS | _KEY_CONTINUES).to_bytes(KEY_BYTES, 'little')


def chunk(key: bytes, episode: int, row: Sequence[Buffer]) -> list[Buffer]:
  """Returns the field of a chunk in an InsertStreamRequest, in parts.

  Args:
    key: of `new_key`.
    episode: of the chunk, which Reverb counts.
    row: the bytes of its only row, in parts; at least one byte.
  """
  first, *others = row
  before, middle, after = _around_row(episode, sum(map(len, row)))
  return [b''.join([before, key, middle, first]), *others, after]


@functools.lru_cache(maxsize=1024)
def _around_row(episode: int, size: int) -> tuple[bytes, bytes, bytes]:
  """Returns what is before the key of a chunk, between it and the row's bytes, and after them."""
  stored = snappy.stored_head(size)
  content = len(stored) + size
  shape = wire.message(2, b'\x08\x01') + wire.message(2, wire.integer(1, size))  # [1, size].
  head = wire.integer(1, _UINT8) + wire.message(2, shape) + wire.delimited(4, content)
  tensor = wire.delimited(1, len(head) + content) + head
  middle = wire.message(2, wire.integer(1, episode))
  middle += wire.delimited(5, len(tensor) + content) + tensor
  after = b'\x30\x01' + wire.integer(7, size)  # Number of tensors, and their uncompressed size.
  whole = len(_KEY) + KEY_BYTES + len(middle) + content + len(after)
  return wire.delimited(1, whole) + _KEY, middle + stored, after


def item(key: bytes, table: str, priority: float, chunk_key: bytes) -> bytes:
  """Returns the field of an item in an InsertStreamRequest: one column, the only row of a chunk."""
  before, middle, after = _around_priority(table)
  return b''.join([before, key, middle, wire.double(5, priority), after, chunk_key, _ROW])


_ROW = b'\x18\x01\x10\x01'  # One row of the chunk, without the axis of rows.


@functools.lru_cache(maxsize=64)
def _around_priority(table: str) -> tuple[bytes, bytes, bytes]:
  """Returns what is before the key of an item, between it and the priority, and before the chunk."""
  middle = wire.message(2, table.encode())
  chunk_slice = len(_KEY) + KEY_BYTES + 2
  column = wire.delimited(1, chunk_slice) + _KEY
  after = wire.delimited(1, len(column) + KEY_BYTES + len(_ROW)) + column
  after = wire.delimited(8, len(after) + KEY_BYTES + len(_ROW)) + after
  priority = len(wire.double(5, 0.0))
  whole = len(_KEY) + KEY_BYTES + len(middle) + priority + len(after) + KEY_BYTES + len(_ROW)
  return wire.delimited(2, whole) + _KEY, middle, after


def confirmed_keys(data: memoryview) -> list[bytes]:
  """Returns the keys, of `new_key`, of the items of an InsertStreamResponse."""
  keys = []
  for _, (begin, end) in wire.fields(data, 0, len(data)):
    found = bytes(data[begin:end])
    keys += [found[i : i + KEY_BYTES] for i in range(0, len(found), KEY_BYTES)]
  return keys
