"""Reverb's compiled module, without the package around it.

The package imports TensorFlow and a dozen other packages. A server needs only the compiled module, NumPy
and one shared library of TensorFlow.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

_LIBRARY = 'libtensorflow_framework.so.2'


def load() -> Any:
  """Returns `reverb.libpybind`.

  Raises:
    ImportError: if a package is missing or does not fit.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')  # TensorFlow would describe the processor.
  try:
    ctypes.CDLL(os.path.join(_directory('tensorflow'), _LIBRARY))  # Reverb's finds it by its name.
  except OSError as error:
    raise ImportError(str(error)) from error
  package = ModuleType('reverb')
  package.__path__ = [_directory('reverb')]
  sys.modules['reverb'] = package
  return importlib.import_module('reverb.libpybind')


def _directory(package: str) -> str:
  spec = importlib.util.find_spec(package)
  if spec is None or not spec.submodule_search_locations:
    raise ImportError(f'no package {package}')
  return spec.submodule_search_locations[0]
