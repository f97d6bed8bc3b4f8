"""Headers of HTTP/2 (HPACK, RFC 7541), as far as gRPC needs them: without a table that grows.

A client that announces a table of size 0 gets literal fields and fields of the static table only.
"""

from __future__ import annotations

# The only fields of the static table whose values gRPC uses.
_STATIC = {8: '200', 9: '204', 10: '206', 11: '304', 12: '400', 13: '404', 14: '500'}
_STATIC_SIZE = 61
_STATUS = ':status'
# Number of bits of the Huffman code of each byte, and of the end; the codes of a canonical code follow.
_HUFFMAN_BITS = bytes.fromhex(
  '0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b08060606'
  '050505060606060606060708'
  '0f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f0506050605060606050707'
  '0606060506070605050607070707070f0b0e0d1c141614141616161716171717171718171818161718171717171516171'
  '617171816151416161717151716161815161717151516151716171714161616171616171a1a1413161716191a1a1a1b1b'
  '1a181913151a1b1b1a1b1815151a1a1c1b1b1b14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1'
  'b1b1a1e'
)


def encode(fields: list[tuple[str, str]]) -> bytes:
  """Returns a block of fields, each of fewer than 127 bytes, as literals that need no table."""
  parts = []
  for name, value in fields:
    parts += [b'\0', bytes([len(name)]), name.encode(), bytes([len(value)]), value.encode()]
  return b''.join(parts)


def decode(block: bytes) -> dict[str, str]:
  """Returns the fields of a block; those with a name of the static table are left out, except `:status`.

  Raises:
    ValueError: if the block is malformed or needs a table that grows.
  """
  fields: dict[str, str] = {}
  position = 0
  try:
    while position < len(block):
      first = block[position]
      if first & 0x80:  # A field of the static table.
        index, position = _integer(block, position, 7)
        if not 1 <= index <= _STATIC_SIZE:
          raise ValueError(f'header {index} is in no table')
        if index in _STATIC:
          fields[_STATUS] = _STATIC[index]
      elif first & 0xE0 == 0x20:  # A new size of the table.
        _, position = _integer(block, position, 5)
      else:
        index, position = _integer(block, position, 6 if first & 0x40 else 4)
        if index > _STATIC_SIZE:
          raise ValueError(f'header {index} is in no table')
        name = _STATUS if index in _STATIC else ''
        if not index:
          name, position = _string(block, position)
        value, position = _string(block, position)
        if name:
          fields[name] = value
  except IndexError:
    raise ValueError('the headers end early') from None
  return fields


def _integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
  """Returns an integer whose first byte has some bits of it, and the position after it."""
  limit = (1 << bits) - 1
  value = block[position] & limit
  position += 1
  if value < limit:
    return value, position
  shift = 0
  while True:
    byte = block[position]
    position += 1
    value += (byte & 0x7F) << shift
    shift += 7
    if byte < 0x80:
      return value, position
    if shift > 28:
      raise ValueError('a number in the headers is too large')


def _string(block: bytes, position: int) -> tuple[str, int]:
  coded = block[position] & 0x80
  size, begin = _integer(block, position, 7)
  data = block[begin : begin + size]
  if len(data) < size:
    raise IndexError
  return (_expanded(data) if coded else data).decode('utf-8', 'replace'), begin + size


def _expanded(data: bytes) -> bytes:
  """Returns the bytes that a Huffman code stands for."""
  symbols = _huffman()
  found = bytearray()
  code = size = 0
  for byte in data:
    for bit in range(7, -1, -1):
      code, size = code << 1 | byte >> bit & 1, size + 1
      if (symbol := symbols.get((size, code))) is not None:
        if symbol == 256:
          raise ValueError('a string in the headers ends early')
        found.append(symbol)
        code = size = 0
  return bytes(found)


def _huffman() -> dict[tuple[int, int], int]:
  """Returns the symbol of each number of bits and code."""
  symbols, code, bits = {}, 0, 0
  for symbol in sorted(range(257), key=lambda s: (_HUFFMAN_BITS[s], s)):
    code <<= _HUFFMAN_BITS[symbol] - bits
    bits = _HUFFMAN_BITS[symbol]
    symbols[bits, code] = symbol
    code += 1
  return symbols
