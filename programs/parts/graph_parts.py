"""What a node between two tables of replay is connected to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from programs.parts.launchpad_nodes import AddressHandle


class GraphParts(NamedTuple):
  """The first arguments of a `nodes.transform.Transform`.

  Attributes:
    make_agent: takes the specs of observations and actions.
    make_environment: takes (number of environments, seed); for its specs.
    params: a handle on the node that serves the learner's parameters.
    replay: addresses of the replay servers.
    monitor: a handle on the monitor.
  """

  make_agent: Callable[..., Any]
  make_environment: Callable[..., Any]
  params: Any
  replay: Sequence[AddressHandle]
  monitor: Any
