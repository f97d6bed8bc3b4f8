"""The format of the data of tensors."""

import random

import cramjam
import pytest

from nodes.unrolls.replay_client import snappy


@pytest.mark.parametrize('size', [1, 59, 60, 61, 256, 257, 65_536, 65_537, 1 << 20])
def test_stored_data_is_snappy_data_and_read_in_place(size):
  data = random.Random(size).randbytes(size)
  whole = memoryview(snappy.stored_head(size) + data)
  assert bytes(cramjam.snappy.decompress_raw(whole)) == data
  found = snappy.expanded(whole, size)
  assert found == data and found.obj is whole.obj


def test_compressed_data_is_expanded():
  data = memoryview(bytes(100_000))
  assert snappy.expanded(memoryview(cramjam.snappy.compress_raw(data)), len(data)) == data


@pytest.mark.parametrize('data', [b'', b'\x05abc', b'\xff\xff\xff\xff\xff\xff'])
def test_damaged_data_is_refused(data):
  with pytest.raises(ValueError):
    snappy.expanded(memoryview(data), 5)
