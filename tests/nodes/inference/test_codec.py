"""Requests and answers as bytes."""

import numpy as np
import pytest

from nodes.inference import codec


def test_what_is_packed_comes_back():
  array = np.arange(12, dtype=np.float32).reshape(3, 4)
  values = ['actor/0', 1 << 62, None, array, array.T, np.zeros((0, 2), np.uint8), array[0, 0:0]]
  for value, got in zip(values, codec.unpack(codec.pack(*values)), strict=True):
    if isinstance(value, np.ndarray):
      assert got.dtype == value.dtype and got.shape == value.shape
      np.testing.assert_array_equal(got, value)
    else:
      assert got == value


@pytest.mark.parametrize('dtype', ['bool', 'int8', 'uint8', 'int32', 'int64', 'float32', 'float64'])
def test_arrays_keep_their_dtype(dtype):
  array = np.array([[0, 1], [1, 0]], dtype)
  (got,) = codec.unpack(codec.pack(array))
  assert got.dtype == array.dtype
  np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize('value', [[True, False], (1, 2), {'a': 1}])
def test_what_would_not_come_back_as_it_was_is_refused(value):
  with pytest.raises(TypeError, match='not an array'):
    codec.pack('actor/0', value)
