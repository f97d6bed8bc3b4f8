"""The format of the data of tensors."""

import random

import cramjam
import pytest

from nodes.unrolls.replay_client import snappy


@pytest.mark.parametrize('size', [1, 59, 60, 61, 256, 257, 65_536, 65_537, 1 << 20])
def test_data_that_does_not_shrink_is_stored_and_read_in_place(size):
  data = memoryview(random.Random(size).randbytes(size))
  *head, row = snappy.smallest(data)
  assert row is data
  whole = memoryview(b''.join([*head, row]))
  assert bytes(cramjam.snappy.decompress_raw(whole)) == data
  found = snappy.expanded(whole, size)
  assert found == data and found.obj is whole.obj


def test_data_that_shrinks_is_compressed():
  data = memoryview(bytes(100_000))
  (found,) = snappy.smallest(data)
  assert len(found) < 10_000
  assert snappy.expanded(found, len(data)) == data


@pytest.mark.parametrize('data', [b'', b'\x05abc', b'\xff\xff\xff\xff\xff\xff'])
def test_damaged_data_is_refused(data):
  with pytest.raises(ValueError):
    snappy.expanded(memoryview(data), 5)
