"""The messages of Reverb's service, of `reverb_service.proto` and `schema.proto`, written and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nodes.unrolls.replay_client import snappy, wire

Buffer = Any

SERVICE = '/deepmind.reverb.ReverbService/'

# TensorFlow's numbers of data types.
_DTYPES = {
  1: np.dtype(np.float32),
  2: np.dtype(np.float64),
  3: np.dtype(np.int32),
  4: np.dtype(np.uint8),
  5: np.dtype(np.int16),
  6: np.dtype(np.int8),
  9: np.dtype(np.int64),
  10: np.dtype(np.bool_),
  17: np.dtype(np.uint16),
  19: np.dtype(np.float16),
  22: np.dtype(np.uint32),
  23: np.dtype(np.uint64),
}
_UINT8 = 4


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


class Sample(NamedTuple):
  """A sampled item.

  Attributes:
    key: of the item.
    probability: of the item when it was sampled.
    table_size: number of items in the table at that time.
    priority: of the item.
    times_sampled: number of times that it has been sampled, this time included.
    columns: its data; read-only, parts of the memory of a message.
  """

  key: int
  probability: float
  table_size: int
  priority: float
  times_sampled: int
  columns: list[np.ndarray]


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


class SampleParser:
  """Joins the parts of samples in the messages of a SampleStream."""

  def __init__(self) -> None:
    self._info: tuple[Any, ...] | None = None
    self._chunks: dict[int, _Chunk] = {}

  def parse(self, data: memoryview) -> list[Sample]:
    """Returns the samples that a SampleStreamResponse completes.

    Raises:
      ValueError: if the message is malformed.
    """
    samples = []
    for number, entry in wire.fields(data, 0, len(data)):
      if number != 1:
        continue
      for part, value in wire.fields(data, *entry):
        if part == 2:
          chunk = _Chunk(data, *value)
          self._chunks[chunk.key] = chunk
        elif part == 1:
          self._info = _sample_info(data, *value)
        elif part == 3 and value:
          samples.append(self._joined())
    return samples

  def _joined(self) -> Sample:
    if self._info is None:
      raise ValueError('a sample lacks its item')
    *fields, columns = self._info
    found = [_column(self._chunks, slices, squeeze) for slices, squeeze in columns]
    self._info, self._chunks = None, {}
    return Sample(*fields, found)


def _sample_info(data: memoryview, begin: int, end: int) -> tuple[Any, ...]:
  """Returns the fields of a sample, and the slices of each of its columns and whether it is squeezed."""
  key = table_size = times_sampled = 0
  probability = priority = 0.0
  columns: list[tuple[list[tuple[int, ...]], bool]] = []
  for number, value in wire.fields(data, begin, end):
    if number == 2:
      probability = wire.to_double(value)
    elif number == 3:
      table_size = value
    elif number == 1:
      for part, value in wire.fields(data, *value):
        if part == 1:
          key = value
        elif part == 5:
          priority = wire.to_double(value)
        elif part == 6:
          times_sampled = value
        elif part == 8:
          columns = [_slices(data, *column) for _, column in wire.fields(data, *value)]
  return key, probability, table_size, priority, times_sampled, columns


def _slices(data: memoryview, begin: int, end: int) -> tuple[list[tuple[int, ...]], bool]:
  slices, squeeze = [], False
  for number, value in wire.fields(data, begin, end):
    if number == 1:
      parts = [0, 0, 0, 0, 0]  # Of the numbers 1 to 4.
      for part, part_value in wire.fields(data, *value):
        parts[part] = part_value
      slices.append(tuple(parts[1:]))
    elif number == 2:
      squeeze = bool(value)
  return slices, squeeze


def _column(
  chunks: Mapping[int, _Chunk], slices: list[tuple[int, ...]], squeeze: bool
) -> np.ndarray:
  arrays = []
  for key, offset, length, index in slices:
    if key not in chunks:
      raise ValueError(f'a sample lacks its chunk {key}')
    arrays.append(chunks[key].tensor(index)[offset : offset + length])
  joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
  return joined[0] if squeeze else joined


class _Chunk:
  """Rows of some columns."""

  def __init__(self, data: memoryview, begin: int, end: int):
    self.key = 0
    self._data = data
    self._tensors: list[tuple[int, int]] = []
    self._is_delta = False
    for number, value in wire.fields(data, begin, end):
      if number == 1:
        self.key = value
      elif number == 4:
        self._is_delta = bool(value)
      elif number == 5:
        self._tensors = [tensor for _, tensor in wire.fields(data, *value)]

  def tensor(self, index: int) -> np.ndarray:
    """Returns a column `[rows, ...]`."""
    if index >= len(self._tensors):
      raise ValueError(f'a chunk lacks the column {index}')
    data, dtype, shape, content = self._data, 0, [], self._data[:0]
    for number, value in wire.fields(data, *self._tensors[index]):
      if number == 1:
        dtype = value
      elif number == 2:
        for part, dimension in wire.fields(data, *value):
          if part == 2:
            shape.append(dict(wire.fields(data, *dimension)).get(1, 0))
      elif number == 4:
        content = data[value[0] : value[1]]
    if dtype not in _DTYPES:
      raise ValueError(f'an item has data of the type {dtype} of TensorFlow, which is not supported')
    numpy_type = _DTYPES[dtype]
    size = numpy_type.itemsize
    for dimension in shape:
      size *= dimension
    array = np.frombuffer(snappy.expanded(content, size), numpy_type).reshape(shape)
    if self._is_delta and numpy_type.kind in 'iu' and len(shape) > 1:
      # Each row is stored as the difference from the one before it.
      array = np.add.accumulate(array, 0, dtype=numpy_type)
    return array
