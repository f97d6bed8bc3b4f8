"""Protocol buffers on the wire: fields are read and written without generated classes."""

from __future__ import annotations

import struct
from typing import Any

_DOUBLE = struct.Struct('<d')
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = Any  # An int of a varint, the 8 or 4 bytes of a number, or (begin, end) of bytes.


def varint(value: int) -> bytes:
  """Returns an integer of at least 0 as the wire has it."""
  if value < 0x80:
    return bytes((value,))
  out = bytearray()
  while value >= 0x80:
    out.append(value & 0x7F | 0x80)
    value >>= 7
  out.append(value)
  return bytes(out)


def integer(number: int, value: int) -> bytes:
  """Returns a field of an integer of at least 0."""
  return varint(number << 3 | _VARINT) + varint(value)


def double(number: int, value: float) -> bytes:
  """Returns a field of a double."""
  return varint(number << 3 | _FIXED64) + _DOUBLE.pack(value)


def delimited(number: int, size: int) -> bytes:
  """Returns what precedes the bytes of a field of text, bytes or a message."""
  return varint(number << 3 | _BYTES) + varint(size)


def message(number: int, data: bytes) -> bytes:
  """Returns a field of text, bytes or a message."""
  return delimited(number, len(data)) + data


def to_double(data: bytes | memoryview) -> float:
  """Returns the number of a field of 8 bytes."""
  value: float = _DOUBLE.unpack(data)[0]
  return value


def fields(data: bytes | memoryview, begin: int, end: int) -> list[tuple[int, Value]]:
  """Returns the numbers and values of the fields of a message, in their order.

  Args:
    data: contains the message.
    begin, end: where the message is.

  Raises:
    ValueError: if the message is malformed.
  """
  found: list[tuple[int, Value]] = []
  append = found.append
  try:
    while begin < end:
      tag = data[begin]
      begin += 1
      if tag >= 0x80:
        tag, begin = _rest(data, begin, tag)
      kind = tag & 7
      if kind == _FIXED64:
        append((tag >> 3, data[begin : begin + 8]))
        begin += 8
        continue
      if kind == _FIXED32:
        append((tag >> 3, data[begin : begin + 4]))
        begin += 4
        continue
      value = data[begin]
      begin += 1
      if value >= 0x80:
        value, begin = _rest(data, begin, value)
      if kind == _BYTES:
        append((tag >> 3, (begin, begin + value)))
        begin += value
      elif kind == _VARINT:
        append((tag >> 3, value))
      else:
        raise ValueError(f'a message has a field of the unknown kind {kind}')
  except IndexError:
    raise ValueError('a message ends early') from None
  if begin != end:
    raise ValueError('a message ends early')
  return found


def delimited_at(data: bytes | memoryview, begin: int) -> tuple[int, int]:
  """Returns where the bytes of a field are that begins at a position.

  Raises:
    ValueError: if the field is malformed, or has no bytes.
  """
  try:
    tag, begin = integer_at(data, begin)
    size, begin = integer_at(data, begin)
  except IndexError:
    raise ValueError('a message ends early') from None
  if tag & 7 != _BYTES or begin + size > len(data):
    raise ValueError('a message has a malformed field')
  return begin, begin + size


def integer_at(data: bytes | memoryview, begin: int) -> tuple[int, int]:
  """Returns a varint, and the position after it."""
  value = data[begin]
  return _rest(data, begin + 1, value) if value >= 0x80 else (value, begin + 1)


def _rest(data: bytes | memoryview, begin: int, value: int) -> tuple[int, int]:
  """Returns a varint whose first byte is `value`, and the position after it."""
  value &= 0x7F
  shift = 7
  while True:
    byte = data[begin]
    begin += 1
    value |= (byte & 0x7F) << shift
    if byte < 0x80:
      return value, begin
    shift += 7
    if shift > 63:
      raise ValueError('a number in a message is too large')
