"""The graph of a run, as `graph.json` in its directory: its groups and what flows between them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from rundir import files, reading, roles

_NAME = 'graph.json'
_MOST_NODES = 100_000  # Views have a line for each.


@dataclasses.dataclass(frozen=True)
class Group:
  """A group of nodes.

  Attributes:
    name: its label, as in 'actor'.
    nodes: number of its nodes.
    runs: name of the class that they run.
    machine: what a node's machine has to be, in words.
    roles: what they do, of `rundir.roles`; () if the graph does not say, as in a stock program.
  """

  name: str
  nodes: int
  runs: str
  machine: str
  roles: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Flow:
  """What the nodes of one group send to those of another.

  Attributes:
    source: name of the sending group.
    target: name of the receiving group.
    what: as the graph declares it, such as 'rows', 'unrolls', 'batches' or 'parameters'; 'reports' to a
      monitor; 'calls' of nodes that declare nothing.
  """

  source: str
  target: str
  what: str


@dataclasses.dataclass(frozen=True)
class Graph:
  """The groups of a program and the flows between them."""

  groups: tuple[Group, ...]
  flows: tuple[Flow, ...]

  def roles(self, name: str) -> tuple[str, ...]:
    """Returns the roles of a group such as 'actor', or of a node such as 'actor/3'; () if unknown."""
    label = name.partition('/')[0]
    if not self.groups:
      return roles.of_earlier_group(label)
    return next((group.roles for group in self.groups if group.name == label), ())


def write(run_dir: str, graph: Graph) -> None:
  """Writes `graph.json`.

  Raises:
    OSError: if it cannot be written.
  """
  files.write_json(os.path.join(run_dir, _NAME), dataclasses.asdict(graph))


def read(run_dir: str) -> Graph:
  """Returns the graph of a run; an empty one if none is recorded, as in runs of earlier versions."""
  try:
    record = reading.json_object(os.path.join(run_dir, _NAME))
    groups = tuple(map(_group, record['groups']))
    graph = Graph(groups, tuple(Flow(**flow) for flow in record['flows']))
  except (OSError, ValueError, LookupError, TypeError):
    return Graph((), ())
  return graph if all(map(_is_valid, graph.groups + graph.flows)) else Graph((), ())


def _group(record: dict[str, Any]) -> Group:
  if 'roles' in record:
    return Group(**record | {'roles': tuple(record['roles'])})
  return Group(**record, roles=roles.of_earlier_group(record['name'], record['runs']))


def _is_valid(part: Group | Flow) -> bool:
  values = vars(part).copy()
  nodes, of_group = values.pop('nodes', 0), values.pop('roles', ())
  texts = all(isinstance(value, str) for value in (*values.values(), *of_group))
  return texts and isinstance(nodes, int) and 0 <= nodes <= _MOST_NODES
