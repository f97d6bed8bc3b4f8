"""Reverb as a Launchpad node that the launcher can build without importing TensorFlow.

`lp.ReverbNode` imports Reverb where the graph is built (10 seconds and 400 MB before anything
starts), and shares an occupied port in silence. This node imports Reverb in its own process and
refuses an occupied port.
"""

from __future__ import annotations

from typing import Any

import launchpad as lp

from programs.parts.address import AddressHandle
from programs.parts.deferred import Deferred


class ReplayNode(lp.PyClassNode):
  """Runs `nodes.replay.ReplayServer`."""

  def __init__(self, tables: Any, *args: Any, **kwargs: Any):
    """Initialises the node.

    Args:
      tables: a picklable function without arguments that returns Reverb tables.
      *args: further arguments of `ReplayServer`, but for the port.
      **kwargs: likewise.
    """
    super().__init__(Deferred('nodes.replay', 'ReplayServer'), tables, *args, **kwargs)
    self._handle = AddressHandle('reverb')
    self._handle.assign(self)

  def create_handle(self) -> AddressHandle:
    """Returns a handle on the server's address."""
    return self._handle

  def _construct_instance(self) -> Any:
    self._kwargs['port'] = lp.get_port_from_address(self._handle.dereference())
    return super()._construct_instance()
