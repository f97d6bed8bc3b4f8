"""Reverb as a Launchpad node that the launcher can build without importing TensorFlow.

`lp.ReverbNode` imports Reverb where the graph is built (10 seconds and 400 MB before anything
starts), and shares an occupied port in silence. This node imports Reverb in its own process and
refuses an occupied port.
"""

from __future__ import annotations

from typing import Any

import launchpad as lp
from launchpad.nodes import base

from programs.deferred import Deferred


class ReplayHandle(base.Handle[str]):
  """Stands for a replay server; a node that is given it gets the server's address, host:port."""

  def __init__(self, address: lp.Address):
    self._address = address

  def dereference(self) -> str:
    """Returns host:port."""
    return self._address.resolve()


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
    self._address = lp.Address('reverb')
    self.allocate_address(self._address)

  def create_handle(self) -> ReplayHandle:
    """Returns a handle on the server's address."""
    return self._track_handle(ReplayHandle(self._address))

  def _construct_instance(self) -> Any:
    self._kwargs['port'] = lp.get_port_from_address(self._address.resolve())
    return super()._construct_instance()
