"""Finds the handles that the nodes of a graph hold on each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import launchpad as lp


@dataclasses.dataclass(frozen=True)
class Node:
  """A node of a graph. It refers to other nodes by their index in the list of all nodes.

  Attributes:
    label: its group.
    name: label and index, as in 'actor/3'.
    node: Launchpad's node.
    holds: owners of the handles that it holds, once per handle.
    calls: the subset of `holds` that it can call; a handle on a plain address cannot be called.
    strangers: number of handles whose owners are not in the program.
  """

  label: str
  name: str
  node: lp.PyNode
  holds: tuple[int, ...]
  calls: tuple[int, ...]
  strangers: int


def parts(node: lp.PyNode) -> Iterator[lp.PyNode]:
  """Yields a node and, of a colocation, the nodes that it runs in its process."""
  yield node
  for inner in getattr(node, 'nodes', ()):
    yield from parts(inner)


def nodes(program: lp.Program) -> list[Node]:
  """Returns the nodes of a program, in the order of its groups.

  A colocation is one node. Handles between the nodes that it runs are left out.
  """
  named = [
    (label, index, node)
    for label, group in program.groups.items()
    for index, node in enumerate(group)
  ]
  owners = {
    id(handle): k
    for k, (_, _, node) in enumerate(named)
    for part in parts(node)
    for handle in part._created_handles
  }
  result = []
  for own, (label, index, node) in enumerate(named):
    handles = [
      (owners.get(id(handle)), handle, part is not node)
      for part in parts(node)
      for handle in part.input_handles
    ]
    held = [(k, handle) for k, handle, inner in handles if not (inner and k == own)]
    known = [(k, handle) for k, handle in held if k is not None]
    calls = tuple(k for k, handle in known if _answers(handle))
    holds = tuple(k for k, _ in known)
    result.append(Node(label, f'{label}/{index}', node, holds, calls, len(held) - len(known)))
  return result


def _answers(handle: object) -> bool:
  return getattr(handle, 'answers', isinstance(handle, lp.CourierHandle))


def cycles(graph: Sequence[Node]) -> Iterator[list[int]]:
  """Yields the nodes of each cycle of calls, of two nodes or more, that a depth-first search finds."""
  done: set[int] = set()
  for start in range(len(graph)):
    path, ahead = [start], [iter(graph[start].calls)]
    while path and start not in done:
      k = next(ahead[-1], None)
      if k is None:
        done.add(path.pop())
        ahead.pop()
      elif k in path[:-1]:
        yield path[path.index(k) :]
      elif k not in done and k not in path:
        path.append(k)
        ahead.append(iter(graph[k].calls))
