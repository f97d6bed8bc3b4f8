"""The graph of a run, as `graph.json` in its directory: its groups and what flows between them."""

from __future__ import annotations

import dataclasses
import os

from rundir import files, reading

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
  """

  name: str
  nodes: int
  runs: str
  machine: str


@dataclasses.dataclass(frozen=True)
class Flow:
  """What the nodes of one group send to those of another.

  Attributes:
    source: name of the sending group.
    target: name of the receiving group.
    what: 'rows', 'unrolls', 'batches', 'originals', 'copies', 'parameters', 'reports' or 'calls'.
  """

  source: str
  target: str
  what: str


@dataclasses.dataclass(frozen=True)
class Graph:
  """The groups of a program and the flows between them."""

  groups: tuple[Group, ...]
  flows: tuple[Flow, ...]


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
    groups = tuple(Group(**group) for group in record['groups'])
    graph = Graph(groups, tuple(Flow(**flow) for flow in record['flows']))
  except (OSError, ValueError, LookupError, TypeError):
    return Graph((), ())
  return graph if all(map(_is_valid, graph.groups + graph.flows)) else Graph((), ())


def _is_valid(part: Group | Flow) -> bool:
  values = vars(part).copy()
  nodes = values.pop('nodes', 0)
  texts = all(isinstance(value, str) for value in values.values())
  return texts and isinstance(nodes, int) and 0 <= nodes <= _MOST_NODES
