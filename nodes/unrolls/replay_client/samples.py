"""The samples in the messages of a SampleStream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nodes.unrolls.replay_client import snappy, wire

# TensorFlow's numbers of data types.
_DTYPES: dict[int, np.dtype] = {
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
# The slices of a column: key of the chunk, offset, length, index; and whether the axis of rows goes.
_Slices = tuple[list[tuple[int, ...]], bool]


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


class SampleParser:
  """Joins the parts of the samples of one table."""

  def __init__(self, table: str):
    """Initialises a parser for the messages of one stream."""
    self._info: tuple[Sample, list[_Slices]] | None = None
    self._chunks: dict[int, _Chunk] = {}
    self._pattern = _pattern(table)

  def parse(self, data: memoryview) -> list[Sample]:
    """Returns the samples that a SampleStreamResponse completes.

    Raises:
      ValueError: if the message is malformed.
    """
    samples: list[Sample] = []
    begin = 0
    while begin < len(data):
      simple = None if self._info else _simple_sample(self._pattern, data, begin)
      if simple is not None:
        sample, begin = simple
        samples.append(sample)
      else:
        begin = self._parse_entry(data, begin, samples)
    return samples

  def _parse_entry(self, data: memoryview, begin: int, samples: list[Sample]) -> int:
    """Adds the sample that an entry completes, if any; returns where the next entry begins."""
    begin, end = wire.delimited_at(data, begin)
    for number, value in wire.fields(data, begin, end):
      if number == 2:
        chunk = _Chunk(data, *value)
        self._chunks[chunk.key] = chunk
      elif number == 1:
        self._info = _sample_info(data, *value)
      elif number == 3 and value:
        if self._info is None:
          raise ValueError('a sample lacks its item')
        sample, columns = self._info
        found = [_column(self._chunks, slices, squeeze) for slices, squeeze in columns]
        samples.append(sample._replace(columns=found))
        self._info, self._chunks = None, {}
    return end


_V = rb'[\x80-\xff]{0,9}[\x00-\x7f]'


def _pattern(table: str) -> re.Pattern[bytes]:
  """Returns what matches an entry, up to its data, if it is a whole sample as `Writer` inserts them.

  It matches what Reverb writes for one row of bytes in one column. Field by field, as `wire.fields`
  does it, reading that takes three times as long. The groups are the size of the entry, then of the
  item its key, priority and times_sampled, the key of its chunk, the probability, the size of the
  table, the key of the chunk that follows, and the sizes of the row and of its snappy data.
  """
  name = re.escape(wire.message(2, table.encode()))
  item = rb'\x08(V)' + name + rb'(?:\x29(.{8}))?\x30(V)(?:\x3aV(?:\x08V)?(?:\x10V)?)?'
  trajectory = rb'\x42V\x0aV\x0aV\x08(V)\x18\x01\x10\x01'
  info = rb'\x0aV\x0aV' + item + trajectory + rb'(?:\x11(.{8}))?(?:\x18(V))?(?:\x20\x01)?'
  chunk = rb'\x12V\x08(V)(?:\x12V(?:\x08V)?(?:\x10V)?(?:\x18V)?)?'
  tensor = rb'\x2aV\x0aV\x08\x04\x12V\x12\x02\x08\x01\x12V\x08(V)\x22(V)'
  whole = rb'\x0a(V)' + info + chunk + tensor
  return re.compile(whole.replace(b'V', _V), re.DOTALL)


# What follows the data of such a sample, up to the end of the entry.
_END = re.compile(rb'\x30\x01(?:\x38V)?\x18\x01'.replace(b'V', _V), re.DOTALL)


def _simple_sample(
  pattern: re.Pattern[bytes], data: memoryview, begin: int
) -> tuple[Sample, int] | None:
  """Returns a sample that matches, and where the next entry begins; None if it does not match."""
  found = pattern.match(data, begin)
  if found is None:
    return None
  entry, key, priority, times, needed, probability, table_size, chunk, size, content = (
    found.groups()
  )
  first = found.end()
  last = first + _integer(content)
  after = _END.match(data, last)
  if after is None or after.end() != found.end(1) + _integer(entry) or needed != chunk:
    return None
  row = np.frombuffer(snappy.expanded(data[first:last], _integer(size)), np.uint8)
  sample = Sample(
    _integer(key),
    wire.to_double(probability) if probability else 0.0,
    _integer(table_size) if table_size else 0,
    wire.to_double(priority) if priority else 0.0,
    _integer(times),
    [row],
  )
  return sample, after.end()


def _integer(data: bytes) -> int:
  """Returns the value of a varint."""
  return wire.integer_at(data, 0)[0]


def _sample_info(data: memoryview, begin: int, end: int) -> tuple[Sample, list[_Slices]]:
  """Returns a sample without columns, and what they consist of."""
  key = table_size = times_sampled = 0
  probability = priority = 0.0
  columns: list[_Slices] = []
  for number, value in wire.fields(data, begin, end):
    if number == 2:
      probability = wire.to_double(value)
    elif number == 3:
      table_size = value
    elif number == 1:
      for part, inner in wire.fields(data, *value):
        if part == 1:
          key = inner
        elif part == 5:
          priority = wire.to_double(inner)
        elif part == 6:
          times_sampled = inner
        elif part == 8:
          columns = [_slices(data, *column) for _, column in wire.fields(data, *inner)]
  return Sample(key, probability, table_size, priority, times_sampled, []), columns


def _slices(data: memoryview, begin: int, end: int) -> _Slices:
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
      raise ValueError(
        f'an item has data of the type {dtype} of TensorFlow, which is not supported'
      )
    numpy_type = _DTYPES[dtype]
    size = numpy_type.itemsize
    for dimension in shape:
      size *= dimension
    array = np.frombuffer(snappy.expanded(content, size), numpy_type).reshape(shape)
    if self._is_delta and numpy_type.kind in 'iu' and len(shape) > 1:
      # Each row is stored as the difference from the one before it.
      array = np.add.accumulate(array, 0, dtype=numpy_type)
    return array
