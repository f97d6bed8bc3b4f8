"""A further address of a node, beside that of its RPC server, which other nodes can be given."""

from __future__ import annotations

import launchpad as lp
from launchpad.nodes import base


class AddressHandle(base.Handle[str]):
  """Stands for an address; a node that is given it gets host:port."""

  def __init__(self, name: str):
    """Initialises a handle of an address that is still to be assigned to a node.

    Args:
      name: small letters and digits.
    """
    self._address = lp.Address(name)

  def assign(self, node: lp.PyClassNode) -> None:
    """Has the launcher choose a port on the machine of `node`, which is to listen there."""
    node.allocate_address(self._address)
    node._track_handle(self)

  def dereference(self) -> str:
    """Returns host:port."""
    return self._address.resolve()
