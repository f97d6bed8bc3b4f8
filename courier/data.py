"""Values as bytes that hold data and no code: reading them, whoever wrote them, only makes plain values.

The plain values are None, bool, int, float, str, bytes, list, tuple, dict with keys of type str, and
NumPy's arrays and scalars of numbers. Subclasses of them are others: a named tuple, say, is refused.

A value is a tag of one byte and what belongs to it, with numbers in little-endian order:

  N, T, F     None, True, False
  i           int of 8 bytes
  I           longer int: its size as one byte, then so many bytes
  d           float of 8 bytes
  s, b        str in UTF-8, bytes: the size in 8 bytes, then so many bytes
  l, t        list, tuple: the number of values in 8 bytes, then the values
  m           dict: the number of entries in 8 bytes, for each the characters of its key in 4 bytes, the
              size of the text of all keys in 8 bytes, that text, then the values
  v           dict of floats alone: as m, but the values have no tags
  n           NumPy scalar: the type, then its bytes
  a, A        NumPy array: the type, the number of axes as one byte, 8 bytes for each axis, then the
              elements in C order; those of A are the next buffer of the message

A type is one byte, an index of `_TYPES`.
"""

from __future__ import annotations

import itertools
import math
import struct
import sys
from collections.abc import Sequence
from typing import Any

SEPARATE = 16 << 10  # Size in bytes from which an array is a buffer of its own.
_DEPTH = 100  # Of values in each other; the last one that is read or written.
_AXES = 32
_PLAIN = (
  'None, bool, int, float, str, bytes, list, tuple, dict with keys of type str, and NumPy arrays and '
  'scalars of numbers'
)
# The last one is of the package ml_dtypes, which JAX loads.
_TYPES = (
  *('|b1', '|i1', '<i2', '<i4', '<i8', '|u1', '<u2', '<u4', '<u8'),
  *('<f2', '<f4', '<f8', '<c8', '<c16', 'bfloat16'),
)
_SIZES = (1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 8, 16, 2)  # In bytes, of one element.
_NUMBERS = {name: number for number, name in enumerate(_TYPES)}

_INT = struct.Struct('<q')
_FLOAT = struct.Struct('<d')
_SIZE = struct.Struct('<Q')
_TAGGED_INT = struct.Struct('<Bq')
_TAGGED_FLOAT = struct.Struct('<Bd')
_TAGGED_SIZE = struct.Struct('<BQ')
_N, _T, _F, _I, _L, _D, _S, _B = b'NTFiIdsb'
_LIST, _TUPLE, _DICT, _FLOATS, _SCALAR, _ARRAY, _SEPARATE_ARRAY = b'ltmvnaA'


def encode(value: Any, name: str) -> tuple[bytes, list[memoryview]]:
  """Returns a plain value as bytes, and beside them the buffers of its large arrays, which are copies.

  Args:
    value: to be encoded.
    name: of the value, for the error.

  Raises:
    TypeError: if the value, or a part of it, is not plain; one sentence.
    ValueError: if it is nested too deeply, as one that contains itself.
  """
  body = bytearray()
  buffers: list[memoryview] = []
  try:
    _put(value, body, buffers, 0)
  except _NotPlain as error:
    text = f'{name}{_path(value)} is {error}, and calls here carry plain data only: {_PLAIN}'
    raise TypeError(text) from None
  return bytes(body), buffers


class _NotPlain(Exception):
  """A value that cannot be encoded; the text says what it is."""


def _put(value: Any, body: bytearray, buffers: list[memoryview], depth: int) -> None:
  """Appends a value to a body and the buffers."""
  kind = type(value)
  if kind is float:
    body += _TAGGED_FLOAT.pack(_D, value)
  elif kind is str:
    text = value.encode('utf-8', 'surrogatepass')
    body += _TAGGED_SIZE.pack(_S, len(text))
    body += text
  elif value is None:
    body.append(_N)
  elif kind is bool:
    body.append(_T if value else _F)
  elif kind is int:
    if -(1 << 63) <= value < 1 << 63:
      body += _TAGGED_INT.pack(_I, value)
    else:
      _put_long(value, body)
  elif kind is dict:
    _put_dict(value, body, buffers, _deeper(depth))
  elif kind is tuple or kind is list:
    depth = _deeper(depth)
    body += _TAGGED_SIZE.pack(_TUPLE if kind is tuple else _LIST, len(value))
    for part in value:
      _put(part, body, buffers, depth)
  elif kind is bytes:
    body += _TAGGED_SIZE.pack(_B, len(value))
    body += value
  else:
    _put_numpy(value, body, buffers)


def _deeper(depth: int) -> int:
  if depth == _DEPTH:
    raise ValueError(f'it is nested more than {_DEPTH} deep')
  return depth + 1


def _put_long(value: int, body: bytearray) -> None:
  size = value.bit_length() // 8 + 1
  if size > 255:
    raise _NotPlain(f'an int of {value.bit_length()} bits')
  body += bytes((_L, size))
  body += value.to_bytes(size, 'little', signed=True)


def _put_dict(
  value: dict[str, Any], body: bytearray, buffers: list[memoryview], depth: int
) -> None:
  for key in value:
    if type(key) is not str:
      raise _NotPlain(f'a dict with a key of type {type(key).__name__}')
  count, text = len(value), ''.join(value).encode('utf-8', 'surrogatepass')
  floats = all(type(part) is float for part in value.values())  # As in most reports.
  body += _TAGGED_SIZE.pack(_FLOATS if floats else _DICT, count)
  body += struct.pack(f'<{count}IQ', *map(len, value), len(text))
  body += text
  if floats:
    body += struct.pack(f'<{count}d', *value.values())
    return
  for part in value.values():
    _put(part, body, buffers, depth)


def _put_numpy(value: Any, body: bytearray, buffers: list[memoryview]) -> None:
  numpy = sys.modules.get('numpy')  # Nothing is an array before NumPy has been imported.
  if numpy is None or not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
    kind = f'{type(value).__module__}.{type(value).__qualname__}'
    raise _NotPlain(f'a {kind.removeprefix("builtins.")}')
  number = _NUMBERS.get(value.dtype.str, _NUMBERS.get(value.dtype.name))
  if number is None:
    raise _NotPlain(f'a NumPy value of dtype {value.dtype}')
  if type(value) is not numpy.ndarray:
    body += bytes((_SCALAR, number))
    body += value.tobytes()
    return
  is_separate = value.nbytes >= SEPARATE
  body += bytes((_SEPARATE_ARRAY if is_separate else _ARRAY, number, value.ndim))
  body += struct.pack(f'<{value.ndim}Q', *value.shape)
  if is_separate:
    buffers.append(memoryview(value.copy().reshape(-1).view(numpy.uint8)))
  else:
    body += value.tobytes()


def _path(value: Any) -> str:
  """Returns where in a value its first part is that cannot be encoded, as in "[0]['loss']"."""
  parts: Any = ()
  if type(value) is dict and all(type(key) is str for key in value):
    parts = value.items()
  elif type(value) in (list, tuple):
    parts = enumerate(value)
  for key, part in parts:
    try:
      _put(part, bytearray(), [], 0)
    except _NotPlain:
      return f'[{key!r}]{_path(part)}'
  return ''


def decode(body: Any, buffers: Sequence[Any]) -> Any:
  """Returns the value that `encode` has made bytes of. Arrays are writable, and use the buffers' memory.

  Args:
    body: bytes-like.
    buffers: bytes-like and writable.

  Raises:
    ValueError: if the bytes are anything else.
  """
  try:
    reader = _Reader(body, buffers)
    value = reader.value(0)
    reader.check_end()
  except (IndexError, OverflowError, StopIteration, TypeError, struct.error) as error:
    raise ValueError(f'it is malformed: {error or type(error).__name__}') from error
  return value


class _Reader:
  """Reads values, one after the other."""

  def __init__(self, body: Any, buffers: Sequence[Any]):
    self._body = body
    self._size = len(body)
    self._buffers = iter(buffers)
    self._at = 0

  def check_end(self) -> None:
    """Raises ValueError if anything is left."""
    if self._at != self._size or next(self._buffers, None) is not None:
      raise ValueError('it is malformed: it does not end where its value does')

  def value(self, depth: int) -> Any:
    """Returns the next value, which is inside of `depth` others."""
    body, at = self._body, self._at
    tag = body[at]
    if tag == _D:
      self._at = at + 9
      return _FLOAT.unpack_from(body, at + 1)[0]
    self._at = at + 1
    if tag == _S:
      return self._text()
    if tag == _I:
      self._at = at + 9
      return _INT.unpack_from(body, at + 1)[0]
    if tag == _DICT:
      keys, depth = self._keys(), _deeper(depth)
      return {key: self.value(depth) for key in keys}
    if tag == _FLOATS:
      keys = self._keys()
      floats = struct.unpack_from(f'<{len(keys)}d', body, self._skip(8 * len(keys)))
      return dict(zip(keys, floats, strict=True))
    if tag in (_TUPLE, _LIST):
      depth = _deeper(depth)
      values = [self.value(depth) for _ in range(self._count())]
      return values if tag == _LIST else tuple(values)
    if tag == _N:
      return None
    if tag in (_T, _F):
      return tag == _T
    if tag == _B:
      return bytes(self._bytes(self._count()))
    if tag == _L:
      self._at += 1
      return int.from_bytes(self._bytes(body[at + 1]), 'little', signed=True)
    if tag in (_SCALAR, _ARRAY, _SEPARATE_ARRAY):
      return self._numpy(tag)
    raise ValueError(f'it is malformed: it has the unknown tag {tag}')

  def _count(self) -> int:
    begin, self._at = self._at, self._at + 8
    return _SIZE.unpack_from(self._body, begin)[0]

  def _skip(self, size: int) -> int:
    """Goes over the next bytes; returns where they begin."""
    begin, self._at = self._at, self._at + size
    if self._at > self._size:
      raise ValueError('it is malformed: it ends too early')
    return begin

  def _bytes(self, size: int) -> Any:
    begin = self._skip(size)
    return self._body[begin : self._at]

  def _text(self) -> str:
    return self._bytes(self._count()).decode('utf-8', 'surrogatepass')

  def _keys(self) -> list[str]:
    count = self._count()
    sizes = struct.unpack_from(f'<{count}I', self._body, self._skip(4 * count))
    text, ends = self._text(), [*itertools.accumulate(sizes)]
    keys = [text[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    if len(set(keys)) != count or len(text) != (ends[-1] if ends else 0):
      raise ValueError('it is malformed: a dict has not as many keys as it says')
    return keys

  def _numpy(self, tag: int) -> Any:
    import numpy as np  # Whoever receives no arrays does without.

    begin = self._skip(1 if tag == _SCALAR else 2)
    number = self._body[begin]
    dtype = np.dtype(_TYPES[number])
    if tag == _SCALAR:
      return np.ndarray((), dtype, self._body, self._skip(_SIZES[number]))[()]
    if (axes := self._body[begin + 1]) > _AXES:
      raise ValueError(f'it is malformed: it has an array of {axes} axes')
    shape = struct.unpack_from(f'<{axes}Q', self._body, self._skip(8 * axes))
    size = math.prod(shape) * _SIZES[number]
    if tag == _ARRAY:
      return np.ndarray(shape, dtype, self._body, self._skip(size)).copy()
    buffer = next(self._buffers)
    if len(buffer) != size:
      raise ValueError(f'it is malformed: an array of {size} bytes has a buffer of {len(buffer)}')
    return np.ndarray(shape, dtype, buffer)
