"""Imports Reverb without TensorFlow: `from nodes.unrolls.thin_reverb import pybind, reverb`.

Reverb's package imports TensorFlow, which takes seconds and hundreds of megabytes. Tables, clients and
samplers need only one of its shared libraries and its protocol buffers. Placeholders replace the rest of
TensorFlow while Reverb is imported. The parts of Reverb that build on TensorFlow are then missing:
`TFClient`, `TimestepDataset`, `TrajectoryDataset`, and signatures of tables.

If a process has already imported Reverb or TensorFlow, both stay as they are.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

# What Reverb imports, other than protocol buffers in tensorflow.core.
_MODULES = (
  'tensorflow',
  'tensorflow.compat',
  'tensorflow.compat.v1',
  'tensorflow.python',
  'tensorflow.python.framework',
  'tensorflow.python.saved_model',
)
_OPS = 'reverb.cc.ops.gen_reverb_ops'
_MISSING = ('TFClient', 'TimestepDataset', 'TrajectoryDataset')
# At least the version that Reverb asks for; its wheel is built for one version only.
_VERSION = '2.8.0'


class _Placeholder(type):
  """A class whose attributes are such classes: enough for annotations and base classes."""

  def __getattr__(cls, name: str) -> Any:
    if name.startswith('__'):
      raise AttributeError(name)
    return _Placeholder(name, (), {'VERSION': _VERSION})


def _placeholder(name: str, path: list[str]) -> ModuleType:
  module = ModuleType(name)
  module.__path__ = path
  module.__version__ = _VERSION  # type: ignore[attr-defined]
  attributes = _Placeholder(name, (), {})
  module.__getattr__ = lambda name: getattr(attributes, name)  # type: ignore[method-assign]
  return module


def _import() -> ModuleType:
  if {'reverb', 'tensorflow'} & set(sys.modules):
    return importlib.import_module('reverb')
  spec = importlib.util.find_spec('tensorflow')
  if spec is None or not spec.submodule_search_locations:
    return importlib.import_module('reverb')  # Raises with Reverb's explanation.
  directory = spec.submodule_search_locations[0]
  # Reverb's library finds it by its name.
  ctypes.CDLL(os.path.join(directory, 'libtensorflow_framework.so.2'))
  for name in _MODULES:
    sys.modules[name] = _placeholder(name, [directory] if name == 'tensorflow' else [])
  sys.modules[_OPS] = _placeholder(_OPS, [])
  try:
    module = importlib.import_module('reverb')
  finally:
    for name in (*_MODULES, _OPS):
      del sys.modules[name]
  for name in _MISSING:
    delattr(module, name)
  return module


if TYPE_CHECKING:
  import reverb
  from reverb import pybind
else:
  reverb = _import()
  pybind = importlib.import_module('reverb.pybind')
