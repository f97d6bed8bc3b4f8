"""Launchpad nodes and handles that the launcher builds without importing JAX, TensorFlow or Reverb."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

import launchpad as lp
from launchpad.nodes import base

from nodes.inference.client import ServerAddress
from nodes.runtime import activity
from nodes.unrolls.tables import Table


@dataclasses.dataclass(frozen=True)
class Deferred:
  """A picklable callable that imports `module` at the first call and calls `module.name`.

  A node's class is imported in the node's process only. The launcher builds a graph without JAX and
  TensorFlow, and an actor never imports them.

  Attributes:
    module: dotted module path.
    name: a class or function in the module.
  """

  module: str
  name: str

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Imports and calls; a hang here is reported as a hang at node start."""
    with activity.doing(activity.STARTING):
      return getattr(importlib.import_module(self.module), self.name)(*args, **kwargs)


class AddressHandle(base.Handle[Any]):
  """A handle on an address; a node that holds it receives host:port.

  Attributes:
    answers: whether nodes that hold the handle wait for replies from the address.
  """

  answers = False

  def __init__(self, name: str):
    """Initialises a handle on an address that is not yet assigned to a node.

    Args:
      name: lower-case letters and digits.
    """
    self._address = lp.Address(name)

  def assign(self, node: lp.PyClassNode) -> None:
    """Lets the launcher choose a port on the machine of `node`, which listens there."""
    node.allocate_address(self._address)
    node._track_handle(self)

  @property
  def port(self) -> int:
    """The address's port; available once the address is bound."""
    return lp.get_port_from_address(self._address.resolve())

  def dereference(self) -> Any:
    """Returns host:port."""
    return self._address.resolve()


class InferenceHandle(AddressHandle):
  """A handle on an inference server; a node receives a `nodes.inference.client.ServerAddress`."""

  answers = True

  def dereference(self) -> Any:
    """Returns the `ServerAddress`."""
    return ServerAddress(super().dereference())


class ListeningNode(lp.PyClassNode):
  """A node that opens its own socket, on a port that the launcher chooses.

  Attributes:
    threads: names of what else runs in its process, which pictures of the graph show.
  """

  threads: Sequence[str] = ()

  def __init__(self, handle: AddressHandle, make: Deferred, *args: Any, **kwargs: Any):
    """Initialises the node.

    Args:
      handle: a handle on the address, not yet assigned.
      make: constructs the node's object; gets `port` in addition to the other arguments.
      *args: positional arguments of `make`.
      **kwargs: keyword arguments of `make`.
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


class DataHandle(lp.CourierHandle):
  """A handle whose clients send data and accept nothing else; see `DataCourierNode`."""

  def dereference(self) -> lp.CourierClient:
    """Returns a client."""
    kwargs = {**self._kwargs, 'data_only': True}
    return lp.CourierClient(self._address.resolve(), **kwargs)


class DataCourierNode(lp.CourierNode):
  """An `lp.CourierNode` whose calls carry data instead of pickles, in both directions.

  What another process sends therefore runs no code in this node, and what this node replies runs none in
  its callers. `courier.data` says what data is.
  """

  def __init__(self, make: Deferred, *args: Any, courier_kwargs: Any = None, **kwargs: Any):
    """Initialises the node; see `lp.CourierNode`."""
    courier_kwargs = {**(courier_kwargs or {}), 'data_only': True}
    super().__init__(make, *args, courier_kwargs=courier_kwargs, **kwargs)

  def create_handle(self) -> lp.CourierHandle:
    """Returns a handle by which other nodes call the methods."""
    return self._track_handle(DataHandle(self.courier_address))


class ListeningCourierNode(ListeningNode, DataCourierNode):
  """A node that opens its own socket and serves the public methods of its object by Courier as well."""

  def add_arguments(self, **kwargs: Any) -> None:
    """Adds arguments of `make`, such as handles on nodes that were added after this one."""
    self.configure(*self._args, **self._kwargs, **kwargs)

  def create_courier_handle(self) -> lp.CourierHandle:
    """Returns a handle by which other nodes call the methods."""
    return DataCourierNode.create_handle(self)


class ReplayNode(ListeningNode):
  """Runs `nodes.replay.ReplayServer`.

  `lp.ReverbNode` imports Reverb where the graph is built and in the node, so both are tied to Reverb's
  Python. It also shares an occupied port silently. This node runs Reverb in a process and an environment
  of its own, and rejects an occupied port.
  """

  def __init__(self, tables: Sequence[Table], *args: Any):
    """Initialises the node.

    Args:
      tables: of the server.
      *args: the other arguments of `ReplayServer`, except the port.
    """
    make = Deferred('nodes.replay', 'ReplayServer')
    super().__init__(AddressHandle('reverb'), make, tables, *args)
