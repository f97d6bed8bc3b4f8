"""Describes a graph as text: its groups, nodes, placement and edges."""

from __future__ import annotations

from collections.abc import Mapping

import launchpad as lp

from launchers.graph import handles
from launchers.placement import Resources


def edges(program: lp.Program) -> dict[tuple[str, str], int]:
  """Counts the handles that the nodes of one group hold on another: {(from, to): count}."""
  nodes = handles.nodes(program)
  count: dict[tuple[str, str], int] = {}
  for node in nodes:
    for owner in node.holds:
      key = node.label, nodes[owner].label
      count[key] = count.get(key, 0) + 1
  return count


def what_runs(node: lp.Node) -> str:
  """Returns the name of the class that a node runs; '' if it has none."""
  constructor = getattr(node, '_constructor', None)
  return getattr(constructor, 'name', getattr(constructor, '__name__', ''))


def describe(program: lp.Program, placement: Mapping[str, Resources]) -> str:
  """Returns the description of a graph, in several lines."""
  width = max(map(len, program.groups))
  lines = [f'program {program.name}', '', 'groups']
  for label, nodes in program.groups.items():
    kind = type(nodes[0]).__name__
    where = placement[label].describe()
    lines.append(f'  {label:{width}}  {len(nodes):3} x {kind}({what_runs(nodes[0])})  on a {where}')
  lines += ['', 'edges (caller -> server)']
  for (source, target), count in edges(program).items():
    lines.append(f'  {source:{width}} -> {target:{width}}  {count}')
  return '\n'.join(lines)
