"""Names of classes and functions that are imported only where they are called."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from nodes.runtime import activity


@dataclasses.dataclass(frozen=True)
class Deferred:
  """Calls `module.name` with what it is called with, importing the module at that moment.

  A node's class is imported in the node's process and nowhere else: the launcher builds a graph
  without JAX and TensorFlow, and an actor never sees them. Picklable.

  Attributes:
    module: dotted module path.
    name: of a class or function in it.
  """

  module: str
  name: str

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Imports and calls; a call that hangs is one of a node that starts."""
    with activity.doing(activity.STARTING):
      return getattr(importlib.import_module(self.module), self.name)(*args, **kwargs)
