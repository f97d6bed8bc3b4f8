"""Reverb as a Launchpad node that the launcher can build without importing TensorFlow.

`lp.ReverbNode` imports Reverb where the graph is built (10 seconds and 400 MB before anything
starts), and shares an occupied port in silence. This node imports Reverb in its own process and
refuses an occupied port.
"""

from __future__ import annotations

from typing import Any

from programs.parts.address import AddressHandle, ListeningNode
from programs.parts.deferred import Deferred


class ReplayNode(ListeningNode):
  """Runs `nodes.replay.ReplayServer`."""

  def __init__(self, tables: Any, *args: Any):
    """Initialises the node.

    Args:
      tables: a picklable function without arguments that returns Reverb tables.
      *args: further arguments of `ReplayServer`, but for the port.
    """
    make = Deferred('nodes.replay', 'ReplayServer')
    super().__init__(AddressHandle('reverb'), make, tables, *args)
