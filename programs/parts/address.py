"""An address of a node that is not that of a Courier server, which other nodes can be given."""

from __future__ import annotations

from typing import Any

import launchpad as lp
from launchpad.nodes import base

from nodes.inference.client import Remote
from programs.parts.deferred import Deferred


class AddressHandle(base.Handle[Any]):
  """Stands for an address; a node that is given it gets host:port.

  Attributes:
    answers: whether who is given it waits for answers from there.
  """

  answers = False

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

  @property
  def port(self) -> int:
    """The address's port, once it is bound."""
    return lp.get_port_from_address(self._address.resolve())

  def dereference(self) -> Any:
    """Returns host:port."""
    return self._address.resolve()


class InferenceHandle(AddressHandle):
  """Stands for an inference server; a node that is given it gets a `nodes.inference.client.Remote`."""

  answers = True

  def dereference(self) -> Any:
    """Returns what the server is asked by."""
    return Remote(super().dereference())


class ListeningNode(lp.PyClassNode):
  """A node that listens by itself, on a port that the launcher chooses for it."""

  def __init__(self, handle: AddressHandle, make: Deferred, *args: Any, **kwargs: Any):
    """Initialises the node.

    Args:
      handle: on the address, not yet assigned.
      make: of the node's object; gets `port` beside the other arguments.
      *args: of it.
      **kwargs: of it.
    """
    super().__init__(make, *args, **kwargs)
    self._handle = handle
    handle.assign(self)

  def create_handle(self) -> AddressHandle:
    """Returns the handle."""
    return self._handle

  def _construct_instance(self) -> Any:
    self._kwargs['port'] = self._handle.port
    return super()._construct_instance()
