"""Pickles for a process under another interpreter, perhaps with another Python and another NumPy.

NumPy 2 pickles arrays by names that NumPy 1 lacks. Functions and classes of a file that runs as a
program are pickled as bytecode, which only the same Python can run.
"""

from __future__ import annotations

import io
import pickletools
from typing import Any

import cloudpickle
import numpy as np

# What cloudpickle calls to make functions and classes that it has pickled by value.
_BY_VALUE = {'_make_function', '_make_skeleton_class', '_make_skeleton_enum', 'CodeType'}


class _Pickler(cloudpickle.CloudPickler):
  def reducer_override(self, value: Any) -> Any:
    if type(value) is np.ndarray or isinstance(value, np.generic):
      array = np.asarray(value)
      if np.dtype(array.dtype.str) == array.dtype and not array.dtype.hasobject:
        return _array, (
          array.tobytes(),
          array.dtype.str,
          array.shape,
          isinstance(value, np.generic),
        )
    return super().reducer_override(value)


def _array(content: bytes, dtype: str, shape: tuple[int, ...], scalar: bool) -> Any:
  array: np.ndarray = np.ndarray(shape, dtype, content).copy()
  return array[()] if scalar else array


def dumps(value: Any) -> bytes:
  """Pickles a value, so that every NumPy can read its arrays; those of objects and records as usual."""
  file = io.BytesIO()
  _Pickler(file).dump(value)
  return file.getvalue()


def has_code(value: Any) -> bool:
  """Returns whether a value cannot be pickled without bytecode, which another Python cannot run."""
  return any(
    isinstance(argument, str) and argument in _BY_VALUE
    for _, argument, _ in pickletools.genops(dumps(value))
  )
