"""Launchpad nodes and handles that the launcher can build without JAX, TensorFlow and Reverb."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import launchpad as lp
from launchpad.nodes import base

from nodes.inference.client import ServerAddress
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


class AddressHandle(base.Handle[Any]):
  """Stands for an address; a node that is given it gets host:port.

  Attributes:
    answers: whether nodes that are given it wait for replies from there.
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
  """Stands for an inference server; a node gets a `nodes.inference.client.ServerAddress` for it."""

  answers = True

  def dereference(self) -> Any:
    """Returns what the server is asked by."""
    return ServerAddress(super().dereference())


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


class ReplayNode(ListeningNode):
  """Runs `nodes.replay.ReplayServer`.

  `lp.ReverbNode` imports Reverb where the graph is built, which takes 10 seconds and 400 MB before
  anything starts, and shares an occupied port silently. This node imports Reverb in its own process
  and refuses an occupied port.
  """

  def __init__(self, tables: Any, *args: Any):
    """Initialises the node.

    Args:
      tables: a picklable function without arguments that returns Reverb tables.
      *args: further arguments of `ReplayServer`, but for the port.
    """
    make = Deferred('nodes.replay', 'ReplayServer')
    super().__init__(AddressHandle('reverb'), make, tables, *args)
